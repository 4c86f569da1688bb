"""Examples: cached, with masks."""

import copy
import dataclasses
import re

import numpy as np
from PIL import Image
import pytest

from tests import in_memory
from tests import pictures
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


def read(mask, image_size=None):
  return examples.read_mask(
      mask, image_size=image_size or mask.shape[::-1], max_pixels=10**6)


def classes(*shape):
  return np.random.default_rng(0).integers(0, 7, shape, np.uint8)


@pytest.mark.parametrize('mode', ['L', 'P', '1', 'I;16'])
def test_files_keep_their_classes(mode):
  mask = classes(4, 4) % 2 if mode == '1' else classes(4, 4)
  picture = (Image.fromarray(mask.astype(np.uint16)) if mode == 'I;16' else
             Image.fromarray(mask * 255).convert('1') if mode == '1' else
             Image.fromarray(mask))
  if mode == 'P':  # The colours are not the classes.
    picture.putpalette(list(range(255, -1, -1)) * 3)
  assert picture.mode == mode
  np.testing.assert_array_equal(
      read(pictures.encode(picture), (4, 4)), mask)


@pytest.mark.parametrize(('mask', 'words'), [
    (pictures.encode(Image.new('RGB', (4, 4))), 'uint8 [4, 4, 3] up to 0'),
    (np.full((4, 4), 256), 'int64 [4, 4] up to 256; expected one class'),
    (np.full((4, 4), -1), 'expected one class from 0 to 255 per pixel'),
    (np.zeros((4, 4)), 'its mask has pixels float64 [4, 4]'),
    (np.zeros((4, 5), np.uint8), '4 x 5 pixels, but the image has 4 x 4'),
    (b'no mask', 'its mask cannot be read: not an image'),
])
def test_masks_that_do_not_fit_are_errors(mask, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    read(mask, (4, 4))
