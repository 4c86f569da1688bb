"""Every supported file decodes as documented; all others are ValueErrors."""

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


@pytest.mark.parametrize(('data', 'message'), [
    (b'', 'not an image of a supported format'),
    (b'P2 9 9 255\n' + b'1 ' * 81, 'PNM in ASCII is not supported'),
    (b'\xff\x4f\xff\x51', 'JPEG 2000 is not supported. Convert'),
    (b'\0\0\0\x20ftypmif1\0\0\0\0mif1avif', 'AVIF is not supported'),
    (GOOD['png'][:-300] + b'\xff' * 300, 'not a readable image'),
    (hostile.png(60_000, 60_000), 'not a readable .* exceeds limit'),
    (hostile.png(9_000, 9_000), 'maximum is 67,108,864. Make it smaller; or'),
    (hostile.with_size(GOOD['jpeg'], 0, 5), 'not a readable image'),
    (GOOD['npy'].replace(b'(24, 33, 3)', b'(24000000, 33000, 3)')[:-40],
     'not a readable .npy file'),
    (GOOD['npy'].replace(b'|u1', b'|O8'), 'not a readable .npy file'),
    (hostile.npy(np.zeros((0, 5), np.uint8)), 'it has 0 x 5 pixels'),
    (hostile.npy(np.zeros((2**14, 2**13), np.uint8)), 'Make it smaller')])
def test_other_files_are_errors(data, message):
  with pytest.raises(ValueError, match=message):
    decode.decode(data, channels=3)


@pytest.mark.parametrize('name', [
    'jpeg', 'png', 'webp', 'webp lossless', 'webp animated', 'gif', 'tiff'])
def test_pixels_are_limited_before_decoding(name):
  data = GOOD[name]
  decode.decode(data, channels=3, max_pixels=24 * 33)
  with pytest.raises(ValueError, match=r'24 x 33 pixels, 792.*max_pixels'):
    decode.decode(data, channels=3, max_pixels=24 * 33 - 1)
