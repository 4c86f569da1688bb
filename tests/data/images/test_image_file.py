"""Transparent pixels become white in every mode and depth; others stay."""

import io

import numpy as np
from PIL import Image
from PIL import ImageCms
import pytest

from tests import pictures
from vit_jax.data import preprocessing
from vit_jax.data.images import decode
from vit_jax.inference import images as images_lib

RED = (200, 40, 30)
NEAR = (200, 40, 31)


def halves(mode, hidden, visible):
  """Returns an image whose left half is to be transparent."""
  image = Image.new(mode, (16, 16), visible)
  image.paste(hidden, (0, 0, 8, 16))
  return image


def palette(mode='P'):
  image = halves('P', 1, 0)
  image.putpalette([*RED, 10, 20, 30, 70, 80, 90])
  if mode == 'PA':
    image = image.convert('PA')
    image.putalpha(halves('L', 0, 255))
  return image


ENCODED = {  # An image, its transparent colour, and the visible colour.
    '1': (halves('1', 0, 255), 0, [255] * 3),
    '1 white': (halves('1', 255, 0), 255, [0] * 3),
    'L': (halves('L', 90, 91), 90, [91] * 3),
    'I': (halves('I', 25_600, 25_601), 25_600, [100] * 3),
    'I;16': (Image.fromarray(np.tile(np.repeat(
        np.uint16([300, 301]), 8), (16, 1))), 300, [1] * 3),
    'RGB': (halves('RGB', NEAR, RED), NEAR, RED),
    'P': (palette(), 1, RED), 'P alphas': (palette(), b'\xff\0', RED)}
FILES = {
    **{f'png {name}': (pictures.encode(image, transparency=colour), visible)
       for name, (image, colour, visible) in ENCODED.items()},
    **{f'png P {bits} bits': (pictures.encode(
        palette(), bits=bits, transparency=1), RED) for bits in (1, 2, 4)},
    'gif P': (pictures.encode(palette(), 'GIF', transparency=1), RED),
    'tiff PA': (pictures.encode(palette('PA'), 'TIFF'), RED),
    **{f'{form} {mode}': (pictures.encode(halves(
        mode, (*NEAR[:len(colour)], 0), (*colour, 255)), form, **options),
                          np.resize(colour, 3))
       for form, mode, colour, options in (
           ('PNG', 'LA', (90,), {}), ('TIFF', 'LA', (90,), {}),
           ('PNG', 'RGBA', RED, {}), ('TIFF', 'RGBA', RED, {}),
           ('WEBP', 'RGBA', RED, {'lossless': True, 'exact': True}))}}


@pytest.mark.parametrize('name', FILES)
def test_transparent_pixels_become_white_and_others_keep_their_colour(name):
  file, visible = FILES[name]
  for channels, expected in ((3, np.array(visible)), (1, luma(visible))):
    pixels = np.asarray(decode.decode(file, channels=channels))
    assert (pixels[0, 0] >= 254).all(), pixels[0, 0]
    np.testing.assert_allclose(pixels[0, -1], expected, atol=1)


@pytest.mark.parametrize('name', FILES)
def test_pillow_images_are_composited_like_their_files(name):
  file, _ = FILES[name]
  opened = images_lib.open_image(
      Image.open(io.BytesIO(file)), preprocessing.Preprocess((8, 8)))
  np.testing.assert_array_equal(
      np.asarray(opened), np.asarray(decode.decode(file, channels=3)))


def test_lab_of_one_channel_is_the_luma_of_its_colour():
  srgb, lab = (ImageCms.createProfile(name) for name in ('sRGB', 'LAB'))
  image = ImageCms.applyTransform(
      Image.new('RGB', (8, 8), RED),
      ImageCms.buildTransform(srgb, lab, 'RGB', 'LAB'))
  (value,) = np.unique(decode.decode(
      pictures.encode(image, 'TIFF'), channels=1))
  assert abs(value - luma(RED)) <= 1


def luma(colour):
  """ITU-R 601."""
  return np.dot(colour, [0.299, 0.587, 0.114])
