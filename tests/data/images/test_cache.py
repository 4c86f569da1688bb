"""What is held in memory is what would have been read."""

import copy
import dataclasses

import numpy as np
import pytest

from vit_jax import data
from vit_jax.data.images import cache as cache_lib

_OPS = [{'op': 'inception_crop'}, {'op': 'flip'}]
_PIXELS = 8 * 8  # Of a digit, in bytes.


@dataclasses.dataclass(frozen=True)
class _Counting:
  """Says what is read of a source."""
  source: object
  read: list

  def __len__(self):
    return len(self.source)

  def __getitem__(self, index):
    self.read.append(index)
    return self.source[index]

  def __getattr__(self, name):
    return getattr(self.source, name)


def _read(num_batches, **settings):
  config = data.parse({
      'source': 'digits', 'split': 'train[:20]', 'resolution': 8,
      'train_ops': _OPS, 'num_threads': 1, 'prefetch': 1, **settings})
  opened = data.open_dataset(config)
  source = _Counting(opened.source, [])
  opened = dataclasses.replace(opened, source=source)
  batches = data.train_batches(config, opened, seed=3, batch_size=10)
  images = np.stack([next(batches)['image'] for _ in range(num_batches)])
  batches.close()
  return images, source.read


@pytest.mark.parametrize('channels', [1, 3])
def test_batches_are_the_same_and_each_example_is_read_once(channels):
  want, read = _read(6, channels=channels)
  assert len(read) >= 60
  got, read = _read(6, channels=channels, cache_mib=1)
  np.testing.assert_array_equal(got, want)
  assert sorted(read) == list(range(20))


def test_more_than_there_is_room_for_is_not_held():
  cache = cache_lib.Cache()
  for index in range(3):
    cache.put(index, index, np.zeros((8, 8, 1), np.uint8),
              max_bytes=2 * _PIXELS)
  assert [cache.get(i) is not None for i in range(3)] == [True, True, False]


def test_the_same_example_twice_takes_room_once():
  cache = cache_lib.Cache()
  for _ in range(2):
    cache.put(0, 'a', np.zeros((8, 8, 1), np.uint8), max_bytes=2 * _PIXELS)
  cache.put(1, 'b', np.zeros((8, 8, 1), np.uint8), max_bytes=2 * _PIXELS)
  assert cache.get(1)['label'] == 'b'


def test_other_examples_under_the_same_numbers_are_not_taken_from_it():
  opened = data.open_dataset(data.parse({'source': 'digits'}))
  opened.cache.put(0, 'a', np.zeros((8, 8, 1), np.uint8), max_bytes=_PIXELS)
  assert dataclasses.replace(opened, num_classes=5).cache.get(0) is None
  assert copy.copy(opened.cache).get(0) is None  # As another process has it.
