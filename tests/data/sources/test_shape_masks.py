"""Which pixels the drawn shapes cover: each is seen, and is no other."""

import numpy as np

from vit_jax.data.sources import shape_kinds
from vit_jax.data.sources import shape_masks


def test_every_kind_shows_and_no_two_look_alike():
  # All draws in the middle of their range: each kind as it is meant.
  def middle(low, high):
    return (low + high) / 2
  masks = {}
  for kind in shape_kinds.KINDS:
    mask = shape_masks.of_kind(kind, (48, 48), middle, scale=0.8, spread=0)
    assert 0.01 < mask.mean() < 0.6, kind
    masks[kind] = mask
  names = [k for k in shape_kinds.KINDS if k not in shape_kinds.RANDOM]
  for i, a in enumerate(names):
    for b in names[:i]:
      assert np.abs(masks[a] - masks[b]).mean() > 0.01, (a, b)
