"""The share of each class that is held out where data have no splits."""

import numpy as np
import pytest

from vit_jax.data.splits import holdout as holdout_lib
from vit_jax.data.splits import split_strings

CLASSES = np.repeat([0, 1, 2, 3], [60, 30, 6, 1])
GROUPS = [f'{i}.png' for i in range(len(CLASSES))]


def hold_out(groups, classes, fraction):
  return holdout_lib.hold_out(
      split_strings.stable_hashes(groups, len(groups)), classes,
      fraction=fraction)


@pytest.mark.parametrize(('fraction', 'counts'), [
    (0.1, [6, 3, None, 0]), (0.2, [12, 6, 1, 0]), (0.9, [54, 27, 5, 0])])
def test_each_class_holds_out_its_fraction(fraction, counts):
  held = hold_out(GROUPS, CLASSES, fraction=fraction)
  for label, count in enumerate(counts):
    found = int(held[label == CLASSES].sum())
    assert found in ((0, 1) if count is None else (count,))


def test_a_larger_fraction_adds_to_a_smaller_one():
  small, large = (hold_out(GROUPS, CLASSES, fraction=f) for f in (0.1, 0.3))
  assert (large | ~small).all() and large.sum() > small.sum()


def test_groups_of_several_classes_stay_together_and_classes_near_their_share():
  rng = np.random.default_rng(0)
  groups = [str(i) for i in rng.integers(0, 80, 800)]  # 80 patients.
  classes = rng.integers(0, 3, 800)
  held = hold_out(groups, classes, fraction=0.2)
  of_group = {}
  for group, is_held in zip(groups, held.tolist()):
    assert of_group.setdefault(group, is_held) == is_held
  shares = [held[classes == label].mean() for label in range(3)]
  np.testing.assert_allclose(shares, 0.2, atol=0.03)


def test_several_labels_hold_out_groups_by_a_hash():
  held = hold_out([str(i) for i in range(2000)], None, fraction=0.25)
  assert 0.22 < held.mean() < 0.28


def test_classes_with_few_held_out_images_are_named():
  held = hold_out(GROUPS, CLASSES, fraction=0.1)
  (note,) = holdout_lib.describe_few(
      CLASSES, held, ['ant', 'bee', 'cow', 'dog'])
  assert '3 of 4 classes (bee 3, cow' in note and 'dog 0' in note
