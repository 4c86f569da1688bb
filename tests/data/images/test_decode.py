"""Every supported file decodes as documented; cut ones are ValueErrors."""

import numpy as np
from PIL import Image
import pytest

from tests import hostile
from tests import pictures
from vit_jax.data.images import decode

RED = (200, 30, 40)
GOOD = hostile.good()


def test_defective_exif_is_ignored():
  data = pictures.encode(
      Image.new('RGB', (8, 8), RED), 'JPEG', exif=b'Exif\0\0II*\0junk')
  image = decode.decode(data, channels=3)
  np.testing.assert_allclose(image.getpixel((0, 0)), RED, atol=4)


@pytest.mark.parametrize('shape', [(5, 7), (5, 7, 1), (5, 7, 3)])
def test_arrays_are_converted_to_the_requested_channels(shape):
  for channels, mode in ((1, 'L'), (3, 'RGB')):
    image = decode.decode(np.full(shape, 9, np.uint8), channels=channels)
    assert image.mode == mode and image.size == (7, 5)
    assert np.unique(np.asarray(image)).tolist() == [9]


@pytest.mark.parametrize('name', GOOD)
def test_supported_files_decode_to_their_first_frame(name):
  image = decode.decode(GOOD[name], channels=3)
  assert image.mode == 'RGB' and image.size == (33, 24)
  # The tolerance covers palettes, one bit and lossy compression.
  expected = np.asarray(hostile.picture()).mean()
  assert abs(np.asarray(image).mean() - expected) < 12, name


@pytest.mark.parametrize('name', GOOD)
def test_a_cut_file_is_an_error_unless_it_has_all_pixels(name):
  data = GOOD[name]
  whole = np.asarray(decode.decode(data, channels=3))
  for place in {*range(0, len(data), 13), *range(len(data) - 24, len(data))}:
    try:
      cut = decode.decode(data[:place], channels=3)
    except ValueError:
      continue
    np.testing.assert_array_equal(np.asarray(cut), whole)


def test_the_orientation_of_a_camera_is_applied():
  exif = Image.Exif()
  exif[0x0112] = 6  # To be turned clockwise.
  data = pictures.encode(hostile.picture(), exif=exif)
  np.testing.assert_array_equal(
      decode.decode(data, channels=3), np.rot90(hostile.picture(), -1))


@pytest.mark.parametrize('name', [
    'jpeg', 'png', 'webp', 'webp lossless', 'webp animated', 'gif', 'tiff'])
def test_pixels_are_limited_before_decoding(name):
  data = GOOD[name]
  decode.decode(data, channels=3, max_pixels=24 * 33)
  with pytest.raises(ValueError, match=r'24 x 33 pixels, 792.*max_pixels'):
    decode.decode(data, channels=3, max_pixels=24 * 33 - 1)
