"""The cache changes no batch, decodes each example once and is bounded."""

import copy
import dataclasses

import numpy as np

from tests import in_memory
from vit_jax import data
from vit_jax.data.images import cache as cache_lib

PIXELS = np.zeros((8, 8, 1), np.uint8)


def _read(num_batches, **settings):
  config = data.parse({
      'source': 'digits', 'split': 'train[:20]', 'resolution': 8,
      'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}],
      'num_threads': 1, 'prefetch': 1, **settings})
  opened = data.open_dataset(config)
  source = in_memory.Recording(opened.source)
  opened = dataclasses.replace(opened, source=source)
  batches = data.train_batches(config, opened, seed=3, batch_size=10)
  images = np.stack([next(batches)['image'] for _ in range(num_batches)])
  batches.close()
  return images, source.read


def test_batches_are_the_same_and_each_example_is_read_once():
  expected, read = _read(6)
  assert len(read) >= 60
  found, read = _read(6, cache_mib=1)
  np.testing.assert_array_equal(found, expected)
  assert sorted(read) == list(range(20))


def test_the_cache_is_bounded_and_counts_each_example_once():
  cache = cache_lib.Cache()
  for index in (0, 0, 1, 2):
    cache.put(index, index, PIXELS, max_bytes=2 * PIXELS.nbytes)
  assert [cache.get(i) is not None for i in range(3)] == [True, True, False]
  assert cache.get(1)['label'] == 1


def test_changed_data_sets_and_other_processes_have_an_empty_cache():
  opened = data.open_dataset(data.parse({'source': 'digits'}))
  opened.cache.put(0, 'a', PIXELS, max_bytes=PIXELS.nbytes)
  assert dataclasses.replace(opened, num_classes=5).cache.get(0) is None
  assert copy.copy(opened.cache).get(0) is None  # Like pickling.
