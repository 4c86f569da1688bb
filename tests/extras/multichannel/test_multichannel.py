"""Any number of channels and any dtype is decoded unscaled, or an error."""

import dataclasses
import io
import re

import numpy as np
from PIL import Image
from PIL import ImageOps
import pytest

from tests import hostile
from tests import in_memory
from tests import pictures
from vit_jax import data
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import preprocessing
from vit_jax.data.images import decode
from vit_jax.data.images import ops as ops_lib
from vit_jax.extras import pictures as shown_lib
from vit_jax.extras.multichannel import decode as multichannel
from vit_jax.inference import images as images_lib

RNG = np.random.default_rng(0)
DEEP = RNG.integers(0, 10_000, (6, 5, 13), np.uint16)


def pages(array):
  first, *rest = [Image.fromarray(np.ascontiguousarray(channel))
                  for channel in np.moveaxis(array, -1, 0)]
  return pictures.encode(first, 'TIFF', save_all=True, append_images=rest)


@pytest.mark.parametrize('data_of', [lambda a: a, hostile.npy, pages])
@pytest.mark.parametrize('dtype', ['uint16', 'float32'])
def test_thirteen_channels_are_decoded_unscaled(data_of, dtype):
  found = multichannel.decode(data_of(DEEP), channels=13, dtype=dtype).pixels
  assert found.dtype == dtype
  np.testing.assert_array_equal(found, DEEP)


@pytest.mark.parametrize(('pixels', 'form', 'mode'), [
    (DEEP[..., :1], 'PNG', None), (DEEP[..., :1], 'TIFF', None),
    (RNG.normal(size=(4, 3, 1)).astype(np.float32), 'TIFF', None),
    (RNG.integers(0, 256, (4, 3, 4), np.uint8), 'TIFF', 'CMYK')])
def test_16_bit_grey_floats_and_four_bands_keep_their_values(
    pixels, form, mode):
  picture = pictures.encode(Image.fromarray(pixels.squeeze(), mode), form)
  found = multichannel.decode(
      picture, channels=pixels.shape[-1], dtype=pixels.dtype.name).pixels
  np.testing.assert_array_equal(found, pixels)
  if pixels.dtype == np.uint16:  # An 8-bit image keeps the upper eight bits.
    grey = np.asarray(decode.decode(picture, channels=1))
    np.testing.assert_array_equal(grey, pixels[..., 0] >> 8)


@pytest.mark.parametrize('section', [
    {'op': 'resize'}, {'op': 'resize', 'method': 'bicubic'},
    {'op': 'inception_crop'}, {'op': 'pad_crop', 'padding': 5},
    {'op': 'flip', 'probability': 1.0},
    {'op': 'resize', 'shorter': 9}, {'op': 'resize', 'antialias': False},
    {'op': 'resize', 'method': 'area'}])
def test_operations_agree_with_pillow(section):
  # Values far from the limits, at which results are clipped.
  pixels = RNG.integers(100, 156, (12, 11, 3), np.uint8)
  (op,) = ops_lib.build([section], size=(8, 7), where='ops')
  want = op(Image.fromarray(pixels), np.random.default_rng(1))
  found = op(multichannel.MultichannelImage(pixels), np.random.default_rng(1))
  assert found.size == want.size
  np.testing.assert_array_equal(found.pixels, np.asarray(want))
  # 16 bits agree up to 8-bit rounding.
  wide = op(multichannel.MultichannelImage(pixels.astype(np.uint16) * 257),
            np.random.default_rng(1))
  assert wide.pixels.dtype == np.uint16
  np.testing.assert_allclose(wide.pixels / 257, np.asarray(want), atol=1)


@pytest.mark.parametrize('image, channels, dtype, message', [
    (DEEP, 12, 'uint16', '[6, 5, 13], but [height, width, 12] was expected'),
    (DEEP.transpose(2, 0, 1), 13, 'uint16', 'transpose it to (1, 2, 0)'),
    (DEEP + 0.5, 13, 'uint16', 'values are float64 from'),
    (DEEP.astype(np.int32) - 1, 13, 'uint16', 'from 0 to 65535'),
    (DEEP, 13, 'uint8', 'data.dtype uint8 holds integers from 0 to 255'),
    (np.full((2, 2, 13), np.nan), 13, 'float32', '52 of its 52 values are NaN'),
    (np.full((2, 2, 13), 1e300), 13, 'float32', 'or beyond float32'),
    (DEEP.astype(complex), 13, 'float32', 'complex128, but real numbers'),
    (hostile.npy(DEEP)[:200], 13, 'uint16', 'not a readable .npy file'),
    (hostile.npy(np.array([{}])), 13, 'uint16', 'not a readable .npy file'),
    (b'nothing', 13, 'uint16', 'not an image of a supported format'),
    (pictures.encode(Image.new('P', (2, 2)), 'PNG'), 1, 'uint16',
     'mode P are colour indices'),
    (pictures.encode(Image.new('RGB', (2, 2)), 'PNG'), 13, 'uint8',
     '[2, 2, 3], but'),
])
def test_unsuitable_images_are_errors(image, channels, dtype, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    multichannel.decode(image, channels=channels, dtype=dtype)


def test_orientations_are_those_of_pillow():
  exif = Image.Exif()
  for orientation in range(1, 9):
    exif[0x0112] = orientation
    file = pictures.encode(hostile.picture(), 'PNG', exif=exif)
    np.testing.assert_array_equal(multichannel.decode(
        file, channels=3, dtype='uint8').pixels, np.asarray(
            ImageOps.exif_transpose(Image.open(io.BytesIO(file)))))


def test_several_channels_of_8_bits_are_shown_as_bright_as_they_are():
  preprocess = preprocessing.parse({
      'resolution': 8, 'channels': 5, 'mean': 0.5, 'std': 0.5})
  image = images_lib.resized(np.full((8, 8, 5), 100, np.uint8), preprocess)
  shown = shown_lib.to_image(ops_lib.pixels(image), preprocess.value_range)
  np.testing.assert_array_equal(shown, np.full((8, 8, 3), 100))


def test_pillow_images_are_read_as_their_files_for_16_bits(tmp_path):
  preprocess = preprocessing.parse({
      'resolution': 8, 'channels': 1, 'mean': 0.5, 'std': 0.5,
      'pixel_dtype': 'uint16', 'value_range': (0, 65535)})
  exif = Image.Exif()
  exif[0x0112] = 6  # Orientation: rotated by 90 degrees.
  path = tmp_path / 'rotated.png'
  Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(
      path, exif=exif)
  with Image.open(path) as image:
    np.testing.assert_array_equal(
        images_lib.read(image, preprocess), images_lib.read(path, preprocess))
  with pytest.raises(ValueError, match='mode P are colour indices'):
    images_lib.read(Image.new('P', (8, 8)), preprocess)


def dataset_of(images):
  return dataset_lib.Dataset(
      name='deep', split='train', num_classes=2,
      source=in_memory.Arrays(images, [0, 1] * 3))


def test_multichannel_batches_are_scaled_on_the_device():
  config = data.parse({
      'channels': 13, 'dtype': 'uint16', 'value_range': [0, 10_000],
      'resolution': 8, 'mean': 'measured', 'std': 'measured'})
  dataset = dataset_of([
      hostile.npy(RNG.integers(c, 10_000, (8, 8, 13), np.uint16))
      for c in range(6)])
  with pytest.raises(ValueError, match='data.mean is not measured yet'):
    _ = config.value_scale
  config = data.measured(config, dataset)
  (batch,) = data.eval_batches(config, dataset, batch_size=6)
  assert batch['image'].dtype == np.uint16
  prepared = data.prepare(config, dataset)(batch, None, train=False)['image']
  reflectances = batch['image'] / 10_000
  np.testing.assert_allclose(
      config.mean, reflectances.mean((0, 1, 2)), rtol=1e-3)
  np.testing.assert_allclose(prepared, reflectances, atol=1e-6)


def test_measuring_follows_the_policy_for_training_images():
  dataset = dataset_of([b'broken', *RNG.integers(
      0, 255, (5, 2, 2, 3), np.uint8)])
  config = data.parse({
      'resolution': 2, 'mean': 'measured', 'std': 'measured',
      'unreadable': 'skip'})
  assert len(data.measured(config, dataset).mean) == 3
  config = dataclasses.replace(config, unreadable='error')
  with pytest.raises(ValueError, match='images with --config.data.unreadable'):
    data.measured(config, dataset)


def test_a_constant_channel_cannot_be_measured():
  config = data.parse({'resolution': 2, 'mean': 'measured', 'std': 'measured'})
  with pytest.raises(ValueError, match='channel 0 is 0 in all of 6 images'):
    data.measured(config, dataset_of(np.zeros((6, 2, 2, 3), np.uint8)))
