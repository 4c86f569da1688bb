"""The digits have a fixed, stratified split."""

import numpy as np

from vit_jax.data.sources import builtin


def test_digits_are_split_evenly_over_classes():
  opened = builtin.open_digits()
  train, test = opened.splits['train'], opened.splits['test']
  assert (len(train), len(test)) == (1437, 360)
  assert not set(train.indices) & set(test.indices)
  counts = np.bincount(test.labels)
  assert counts.min() >= 34 and counts.max() <= 38
  assert opened.class_names == tuple('0123456789')
  example = train[0]
  assert example['image'].shape == (8, 8, 1)
  assert train.images.max() == 255 and train.images.min() == 0


def test_digit_split_never_changes():
  # Published results depend on these examples.
  indices = builtin.open_digits().splits['test'].indices
  assert indices[:8].tolist() == [8, 9, 14, 16, 26, 28, 36, 42]
  assert int(indices.sum()) == 323972
