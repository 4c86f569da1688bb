"""Examples are cached."""

import copy
import dataclasses

import numpy as np

from tests import in_memory
from vit_jax import data
from vit_jax.data import examples


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


def test_the_cache_is_bounded():
  config = data.parse({'source': 'shapes', 'resolution': 8, 'cache_mib': 2})
  opened = data.open_dataset(config)
  load = examples.LoadExample(opened, config, train=False)
  opened.cache.num_bytes = 2**21 - 500
  for index in range(4):
    load.image(index)
  assert list(opened.cache) == [0, 1]


def test_changed_data_sets_and_other_processes_have_an_empty_cache():
  opened = data.open_dataset(data.parse({'source': 'digits'}))
  opened.cache[0] = {'label': 'a'}
  assert not dataclasses.replace(opened, num_classes=5).cache
  assert not copy.copy(opened.cache)  # Like pickling.
