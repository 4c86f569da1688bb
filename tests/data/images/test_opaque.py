"""Transparent pixels become white in every mode and depth; others stay."""

import io
import struct

import numpy as np
from PIL import Image
from PIL import ImageCms
import pytest

from tests import hostile
from tests import pictures
from vit_jax.data import preprocessing
from vit_jax.data.images import decode
from vit_jax.inference import images as images_lib

SIDE = 16
RED = (200, 40, 30)
PALETTE = [200, 40, 30, 10, 20, 30, 70, 80, 90]


def halves(mode, hidden, visible):
  """Returns an image whose left half is to be transparent."""
  image = Image.new(mode, (SIDE, SIDE), visible)
  image.paste(hidden, (0, 0, SIDE // 2, SIDE))
  return image


def with_alpha(mode, form, colour, **options):
  hidden = (9, 8, 7)[:len(colour)]
  return pictures.encode(halves(
      mode, (*hidden, 0), (*colour, 255)), form, **options)


def palette(mode='P', hidden=1, visible=0):
  image = Image.new('P', (SIDE, SIDE), visible)
  image.putpalette(PALETTE)
  image.paste(hidden, (0, 0, SIDE // 2, SIDE))
  if mode == 'PA':
    image = image.convert('PA')
    image.putalpha(halves('L', 0, 255))
  return image


def png(hidden, visible, *, bits, colour, transparent):
  """Returns a PNG of two pixels, which are given as integers or 16-bit RGB."""
  if bits == 16:
    row = struct.pack(f'>{2 * len(transparent)}H', *hidden, *visible)
  else:
    row = bytes([(hidden << bits | visible) << (8 - 2 * bits)])
  chunks = [(b'tRNS', struct.pack(f'>{len(transparent)}H', *transparent))]
  return hostile.png(
      2, 1, bits=bits, colour=colour, data=b'\0' + row, chunks=chunks)


WRITTEN = {
    'png 1': (pictures.encode(halves('1', 0, 255), transparency=0), [255] * 3),
    'png 1 white': (
        pictures.encode(halves('1', 255, 0), transparency=255), [0] * 3),
    'png L': (pictures.encode(halves('L', 90, 91), transparency=90), [91] * 3),
    'png I': (pictures.encode(
        halves('I', 25_600, 25_601), transparency=25_600), [100] * 3),
    'png I;16': (pictures.encode(Image.fromarray(np.tile(np.repeat(
        np.uint16([300, 301]), SIDE // 2), (SIDE, 1))), transparency=300),
                 [1] * 3),
    'png RGB': (pictures.encode(
        halves('RGB', (200, 40, 31), RED), transparency=(200, 40, 31)), RED),
    **{f'png P {bits} bits': (pictures.encode(
        palette(), bits=bits, transparency=1), RED) for bits in (1, 2, 4, 8)},
    'png P alphas': (pictures.encode(
        palette(), transparency=b'\xff\0'), RED),
    'gif P': (pictures.encode(palette(), 'GIF', transparency=1), RED),
    'tiff PA': (pictures.encode(palette('PA'), 'TIFF'), RED),
    **{f'{form} LA'.lower(): (with_alpha('LA', form, (90,)), [90] * 3)
       for form in ('PNG', 'TIFF')},
    **{f'{form} RGBA'.lower(): (with_alpha('RGBA', form, RED, **options), RED)
       for form, options in (
           ('PNG', {}), ('TIFF', {}),
           ('WEBP', {'lossless': True, 'exact': True}))},
}
HAND_MADE = {
    'grey of 2 bits': (
        png(1, 2, bits=2, colour=0, transparent=[1]), [170] * 3),
    'grey of 4 bits': (
        png(2, 15, bits=4, colour=0, transparent=[2]), [255] * 3),
    'other grey of 4 bits': (
        png(2, 3, bits=4, colour=0, transparent=[2]), [51] * 3),
    'grey of 16 bits': (png(
        [300], [40_000], bits=16, colour=0, transparent=[300]), [156] * 3),
    'near grey of 16 bits': (png(
        [300], [301], bits=16, colour=0, transparent=[300]), [1] * 3),
    'RGB of 16 bits': (png(
        [1000, 2000, 3000], [40_000, 0, 0], bits=16, colour=2,
        transparent=[1000, 2000, 3000]), [156, 0, 0]),
    'near RGB of 16 bits': (png(
        [1000, 2000, 3000], [1000, 2000, 3001], bits=16, colour=2,
        transparent=[1000, 2000, 3000]), [3, 7, 11]),
}
FILES = WRITTEN | HAND_MADE


@pytest.mark.parametrize('name', FILES)
def test_transparent_pixels_become_white_and_others_keep_their_colour(name):
  file, visible = FILES[name]
  for channels, expected in ((3, np.array(visible)), (1, luma(visible))):
    pixels = np.asarray(decode.decode(file, channels=channels))
    assert (pixels[0, 0] >= 254).all(), pixels[0, 0]
    np.testing.assert_allclose(pixels[0, -1], expected, atol=1)


@pytest.mark.parametrize('name', FILES)
def test_pillow_images_are_composited_like_their_files(name):
  if name == 'near RGB of 16 bits':
    pytest.skip('Pillow keeps only the upper 8 bits of an opened image.')
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
