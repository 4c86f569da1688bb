"""Subsets by keys are stable and nested, and overlap in the same examples."""

import dataclasses

import numpy as np
import pytest

from tests import in_memory
from vit_jax import data
from vit_jax.data.sources import builtin
from vit_jax.data.sources import protocol
from vit_jax.data.sources import shapes as shapes_lib
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets


def _labels(source):
  return [source.label(i) for i in range(len(source))]


def _choose(source, count):
  return subsets.select_random(source, count, name='numbers')


def test_numbers_are_hashed_by_splitmix64(monkeypatch):
  # The increment of the generator, so that example 0 has its first output.
  monkeypatch.setattr(
      split_strings, 'stable_hash', lambda name: 0x9e3779b97f4a7c15)
  # The outputs of the published generator for the seed 0.
  assert subsets.hash_numbers('a set', np.arange(3)).tolist() == [
      0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f]


@pytest.mark.parametrize('count', [1, 511, 9_999, 10_000])
def test_the_lowest_hashes_are_chosen(count):  # Hence subsets are nested.
  hashes = subsets.hash_numbers('numbers', np.arange(10_000))
  expected = np.sort(np.argsort(hashes)[:count]).tolist()
  assert _labels(_choose(in_memory.Numbers(10_000), count)) == expected


def test_repeated_examples_are_counted_separately():
  opened = protocol.DatasetSplits(
      {'train': in_memory.Numbers(40)}, num_classes=40)
  twice = split_strings.select_split(opened, 'train+train', name='numbers')
  for count in (1, 2, 39, 40, 79):
    chosen = _labels(_choose(twice, count))
    assert len(chosen) == count
    assert len(set(chosen)) == -(-count // 2)


def test_text_keys_are_chosen_by_their_hash():
  train = builtin.open_digits().splits['train']
  chosen = _choose(train, 100)
  keys = [train.key(i) for i in range(len(train))]
  lowest = set(sorted(keys, key=split_strings.stable_hash)[:100])
  assert [chosen.key(i) for i in range(100)] == [
      key for key in keys if key in lowest]


def test_a_config_takes_a_number_or_a_fraction():
  def opened(**settings):
    return data.open_dataset(data.parse({'source': 'shapes', **settings}))
  few, share = opened(num_examples=1_000), opened(fraction=0.01)
  assert few.num_examples == share.num_examples == 1_000
  assert [few.source.key(i) for i in range(1_000)] == [
      share.source.key(i) for i in range(1_000)]
  config = data.parse({'source': 'digits', 'num_examples': 50})
  assert data.open_dataset(config).num_examples == 50
  # Other splits are not reduced.
  assert data.open_dataset(config, split='test').num_examples == 360
  assert data.open_dataset(config, split='train').num_examples == 1_437


@pytest.mark.parametrize('settings', [
    {'num_examples': 5}, {'fraction': 0.003}, {'split': 'train[:5]'}, {},
    {'num_examples': 500}, {'examples_per_class': 1},
    {'split': 'train+test[:9]'}])
def test_classes_without_an_image_in_a_part_are_named(settings):
  config = data.parse({'source': 'digits', **settings})
  opened = data.open_dataset(config)
  trained = {*_labels(opened.source)}
  missing = [str(i) for i in range(10) if i not in trained]
  assert opened.description == (
      f'{len(missing)} of 10 classes have no image in these {len(opened)}: '
      f'{", ".join(missing[:8])}' if missing else '')
  assert not data.open_dataset(config, split='test[:1]').description


DIGITS = data.DataConfig(source='digits', resolution=8)
SHAPES = data.DataConfig(
    source='shapes',
    shapes=shapes_lib.ShapesConfig(num_examples=200, num_test_examples=40))


def opened(config, split, **settings):
  return data.open_dataset(dataclasses.replace(config, split=split, **settings))


@pytest.mark.parametrize('config', [DIGITS, SHAPES], ids=['keys', 'numbers'])
@pytest.mark.parametrize(('one', 'other', 'expected'), [
    ('train', 'test', False),
    ('train[:90%]', 'train[90%:]', False),
    ('train', 'train[7:8]', True),
    ('test[:90%]', 'train+test[90%:]', False),
    ('train[:10]+train[20:30]', 'train[10:20]+train[30:40]', False),
    ('train[:10]+train[20:30]', 'train[29:31]', True),
])
def test_ranges_overlap_where_they_share_an_example(
    config, one, other, expected):
  one, other = opened(config, one), opened(config, other)
  assert one.overlaps(other) is expected
  assert other.overlaps(one) is expected


@pytest.mark.parametrize(('config', 'settings'), [
    (DIGITS, {'num_examples': 40}), (SHAPES, {'num_examples': 40}),
    (DIGITS, {'examples_per_class': 4})], ids=['keys', 'numbers', 'classes'])
def test_a_subset_overlaps_exactly_its_examples(config, settings):
  subset = opened(config, 'train[10:]+train[:10]', **settings)
  chosen = {subset.source.key(i) for i in range(40)}
  whole = opened(config, 'train')
  for index in range(20, 32):
    one = opened(config, f'train[{index}:{index + 1}]')
    assert subset.overlaps(one) == (whole.source.key(index) in chosen)
  assert not subset.overlaps(opened(config, 'test'))


def test_numbered_sources_are_compared_without_keys(monkeypatch):
  huge = dataclasses.replace(SHAPES, shapes=shapes_lib.ShapesConfig(
      num_examples=3_000_000, num_test_examples=40))
  one, other = opened(huge, 'train[:99%]'), opened(huge, 'train[99%:]')
  monkeypatch.setattr(
      type(one.source.parts[0][0]), 'key', lambda *_: pytest.fail('read'))
  assert not one.overlaps(other)
