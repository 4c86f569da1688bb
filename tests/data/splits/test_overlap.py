"""`overlaps` is true only for selections that share an example."""

import dataclasses

import pytest

from tests import own_data
from vit_jax import data

DIGITS = data.DataConfig(source='digits', resolution=8)
SHAPES = data.DataConfig(
    source='shapes',
    shapes=data.ShapesConfig(num_examples=200, num_test_examples=40))


def opened(config, split, **settings):
  return data.open_dataset(dataclasses.replace(config, split=split, **settings))


@pytest.mark.parametrize('config', [DIGITS, SHAPES], ids=['keys', 'numbers'])
@pytest.mark.parametrize(('one', 'other', 'expected'), [
    ('train', 'train', True),
    ('train', 'test', False),
    ('train[:90%]', 'train[90%:]', False),
    ('train[:90%]', 'train[89%:]', True),
    ('train', 'train[7:8]', True),
    ('test[:90%]', 'test', True),
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


def test_a_folder_is_identified_by_its_absolute_path(
    tmp_path, monkeypatch):
  own_data.write(tmp_path, *(
      f'{root}/{split}/{name}/1.png'
      for root in 'xy' for split in ('train', 'test') for name in 'ab'))
  monkeypatch.chdir(tmp_path)

  def folder(name, split='train'):
    return data.open_dataset(data.DataConfig(source=name, split=split))

  assert folder('./x').overlaps(folder(str(tmp_path / 'x')))
  assert not folder('./x').overlaps(folder('./x', 'test'))
  assert not folder('./x').overlaps(folder('./y'))


def test_numbered_sources_are_compared_without_keys(monkeypatch):
  huge = dataclasses.replace(SHAPES, shapes=data.ShapesConfig(
      num_examples=3_000_000, num_test_examples=40))
  one, other = opened(huge, 'train[:99%]'), opened(huge, 'train[99%:]')
  monkeypatch.setattr(
      type(one.source.parts[0][0]), 'key', lambda *_: pytest.fail('read'))
  assert not one.overlaps(other)
