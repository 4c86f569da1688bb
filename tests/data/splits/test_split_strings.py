"""Split strings select the ranges of TFDS."""

import numpy as np
import pytest

from vit_jax import data
from vit_jax.data.sources import builtin
from vit_jax.data.splits import split_strings


@pytest.mark.parametrize(('split', 'train', 'test'), [
    ('train', range(1437), ()), ('train[:98%]', range(1408), ()),
    ('train[98%:]', range(1408, 1437), ()),
    ('train[-10:]', range(1427, 1437), ()),
    ('train[:3]+test[2:4]', range(3), range(2, 4))])
def test_split_strings_select_ranges(split, train, test):
  opened = builtin.open_digits()
  source = split_strings.select_split(opened, split, name='digits')
  expected = [(opened.splits[name], i) for name, chosen in (
      ('train', train), ('test', test)) for i in chosen]
  assert len(source) == len(expected)
  for i, (part, index) in enumerate(expected):
    assert source.key(i) == part.key(index)
    assert source.label(i) == part.label(index)
  np.testing.assert_array_equal(source[i]['image'], part[index]['image'])
  with pytest.raises(IndexError):
    source[len(source)]


@pytest.mark.parametrize(('split', 'expected', 'count'), [
    ('all', 'train+test', 1437 + 360),
    ('all[:90%]', 'train[:90%]+test[:90%]', 1293 + 324),
    ('train[:2]+all', 'train[:2]+train+test', 2 + 1437 + 360)])
def test_all_is_every_split_or_a_part_of_each(split, expected, count):
  dataset = data.open_dataset(data.parse({'source': 'digits'}), split=split)
  assert (dataset.split, len(dataset)) == (expected, count)


@pytest.mark.parametrize(('others', 'expected'), [
    (['val', 'test'], 'test'), (['valid', 'a'], 'valid'), (['a'], 'a'),
    ([], 'train')])
def test_evaluation_is_on_a_split_other_than_train(others, expected):
  assert split_strings.choose_eval_split(['train', *others]) == expected
