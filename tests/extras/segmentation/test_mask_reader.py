"""Masks are read, and follow the operations of their images."""

import dataclasses
import re
from typing import ClassVar

import numpy as np
from PIL import Image
import pytest

from tests import pictures
from vit_jax import data
from vit_jax import registry
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import examples
from vit_jax.data.sources import protocol
from vit_jax.extras.segmentation import mask_reader

VALUES = 5


@dataclasses.dataclass(frozen=True)
class Own(data.Operation):
  """Draws random numbers, and changes nothing."""
  masks: ClassVar = 'stays'

  def __call__(self, image, rng):
    rng.random(3)
    return image


@dataclasses.dataclass(frozen=True)
class Unfit(Own):
  """Does not apply to masks."""
  masks: ClassVar = 'none'


registry.allow(__name__)


class Scenes(protocol.Source):
  """Grey images that show their masks: a pixel of class c is 50 c + 50."""

  def __init__(self, *masks):
    self.masks = masks

  def __len__(self):
    return len(self.masks)

  def __getitem__(self, index):
    mask = self.masks[index]
    return {'image': 50 * mask[..., None] + 50, 'label': 0,
            'segmentation': mask}

  def key(self, index):
    return f'scene {index}'


def scene(*shape, seed=0):
  return np.random.default_rng(seed).integers(0, VALUES - 1, shape, np.uint8)


def load(*masks, classes=(), ignored=255, train=True, **settings):
  dataset = dataset_lib.Dataset(
      name='scenes', split='train', source=Scenes(*masks), num_classes=1)
  config = data.parse({'resolution': 12, 'channels': 1, **settings})
  return examples.LoadExample(
      mask_reader.with_masks(dataset, classes, ignored=ignored), config,
      train=train)


NEAREST = {'method': 'nearest'}
CROP = {'op': 'inception_crop', 'area': [0.2, 1.0], **NEAREST}
JITTER = {'op': f'{__name__}:Own'}


@pytest.mark.parametrize('ops', [
    [{'op': 'resize', **NEAREST}],
    [{'op': 'resize', 'shorter': 14, **NEAREST}, {'op': 'central_crop'}],
    [CROP, {'op': 'flip'}],
    [CROP | {'sampler': 'tf'}, JITTER, {'op': 'flip'}],
    [{'op': 'resize', **NEAREST}, JITTER, {'op': 'pad_crop'}, {'op': 'flip'}],
    [{'op': 'resize', 'size': 20, 'antialias': False, **NEAREST}, CROP],
])
def test_masks_follow_the_random_operations_of_their_images(ops):
  loader = load(scene(24, 30), train_ops=ops)
  different = set()
  for seed in range(6):
    row = loader(0, np.random.default_rng(seed))
    image, mask = row['image'][..., 0], row['segmentation']
    np.testing.assert_array_equal(
        np.where(mask == 255, 0, 50 * mask + 50), image)
    different.add(mask.tobytes())
  assert len(different) == (1 if len(ops) == 1 or 'shorter' in ops[0] else 6)


def test_padding_has_no_class():
  mask = np.zeros((12, 12), np.uint8)
  row = load(mask, train_ops=[{'op': 'pad_crop', 'padding': 4}])(
      0, np.random.default_rng(2))
  assert set(np.unique(row['segmentation'])) == {0, 255}


def test_bilinear_images_have_masks_of_the_nearest_class():
  mask = np.kron(scene(6, 6), np.ones((4, 4), np.uint8))
  row = load(mask, train_ops=[{'op': 'resize', 'method': 'bilinear'}])(
      0, np.random.default_rng(0))
  np.testing.assert_array_equal(row['segmentation'], mask[1::2, 1::2])


def test_values_are_checked_against_the_classes():
  mask = scene(12, 12)
  mask[:2] = 7
  loader = load(mask, classes='abcd', ignored=7)
  row = loader(0, np.random.default_rng(0))
  np.testing.assert_array_equal(
      row['segmentation'], np.where(mask == 7, 255, mask))
  assert row['label'] == 0 and loader.dataset.num_classes == 4
  np.testing.assert_array_equal(
      load(mask, classes='abcd', ignored=7, train=False).original_mask(0),
      row['segmentation'])
  with pytest.raises(ValueError, match=re.escape(
      "Example 0 of scenes, split 'train' (scene 0): its mask has the value 7, "
      'but the 4 classes have the values 0 to 3, and pixels without a class '
      '255.')):
    load(mask, classes='abcd')(0, np.random.default_rng(0))


def test_batches_with_masks_have_the_abstract_shapes():
  config = data.parse({'source': 'shapes', 'resolution': (8, 12)})
  dataset = mask_reader.with_masks(
      data.open_dataset(config), ['ground', 'shape'])
  batches = data.train_batches(config, dataset, seed=0, batch_size=4)
  batch = next(batches)
  batches.close()
  assert {name: (array.shape, array.dtype) for name, array in batch.items()
          } == {name: (array.shape, array.dtype) for name, array in
                data.abstract_batch(config, dataset, 4).items()}
  assert set(np.unique(batch['segmentation'])) == {0, 1}


def read(mask, image_size=None):
  return mask_reader.read(
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
  np.testing.assert_array_equal(read(pictures.encode(picture), (4, 4)), mask)
