"""Split strings select the ranges of TFDS."""

import numpy as np
import pytest

from vit_jax.data.sources import builtin
from vit_jax.data.splits import split_strings


@pytest.mark.parametrize('split,expected', [
    ('train', range(1437)), ('train[:98%]', range(1408)),
    ('train[98%:]', range(1408, 1437)), ('train[-10:]', range(1427, 1437)),
    ('train[5:9]', range(5, 9))])
def test_split_strings_select_ranges(split, expected):
  opened = builtin.open_digits()
  source = split_strings.select_split(opened, split, name='digits')
  train = opened.splits['train']
  assert [source.key(i) for i in range(len(source))] == [
      train.key(i) for i in expected]
  assert [source.label(i) for i in range(len(source))] == [
      train.label(i) for i in expected]


def test_split_strings_concatenate_splits():
  opened = builtin.open_digits()
  source = split_strings.select_split(
      opened, 'train[:3]+test[2:4]', name='digits')
  assert [source.key(i) for i in range(len(source))] == [
      opened.splits['train'].key(i) for i in range(3)] + [
          opened.splits['test'].key(i) for i in (2, 3)]
  np.testing.assert_array_equal(
      source[4]['image'], opened.splits['test'][3]['image'])
  with pytest.raises(IndexError):
    source[5]


@pytest.mark.parametrize('split,message', [
    ('trian', "Did you mean 'train'"), ('train[', 'Cannot read the split'),
    ('train[:5000]', 'train 1,437'), ('train[7:7]', 'has no examples'),
    ('train[:1shard]', 'Use examples or percent')])
def test_invalid_splits_are_errors(split, message):
  with pytest.raises(ValueError, match=message):
    split_strings.select_split(builtin.open_digits(), split, name='digits')
