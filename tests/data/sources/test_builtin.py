"""The digits have a fixed split."""

import numpy as np

from vit_jax.data.sources import builtin


def test_digits_are_split_evenly_over_classes_and_never_change():
  opened = builtin.open_digits()
  train, test = opened.splits['train'], opened.splits['test']
  assert (len(train), len(test)) == (1437, 360)
  assert not set(train.indices) & set(test.indices)
  counts = np.bincount(test.labels)
  assert counts.min() >= 34 and counts.max() <= 38
  assert train[0]['image'].shape == (8, 8, 1)
  assert train.images.max() == 255 and train.images.min() == 0
  # Published results depend on these examples.
  assert test.indices[:8].tolist() == [8, 9, 14, 16, 26, 28, 36, 42]
  assert int(test.indices.sum()) == 323972
