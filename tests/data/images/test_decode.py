"""Every supported file decodes as documented; all others are ValueErrors."""

import io
import re

import numpy as np
from PIL import Image
from PIL import ImageOps
import pytest

from tests import fuzz
from tests import hostile
from tests import pictures
from vit_jax.data.images import decode
from vit_jax.data.images import multichannel

RED = (200, 30, 40)
GOOD = hostile.good()
BAD = hostile.bad()
EXIF_BOMBS = hostile.exif_bombs()


def _mean(data, channels=3):
  image = decode.decode(data, channels=channels)
  return np.asarray(image, np.float64).reshape(-1, channels).mean(0)


@pytest.mark.parametrize(('mode', 'value', 'expected'), [
    ('L', 90, 90), ('LA', (90, 255), 90), ('1', 1, 255),
    ('RGBA', (0, 0, 0, 0), 255), ('LA', (0, 0), 255)])
def test_grey_is_repeated_and_transparent_pixels_become_white(
    mode, value, expected):
  data = pictures.encode(Image.new(mode, (8, 8), value), 'PNG')
  np.testing.assert_allclose(_mean(data), [expected] * 3)
  palette = Image.new('P', (8, 8), 1)
  palette.putpalette([0, 0, 0, *RED])
  for transparent, colour in ((1, [255] * 3), (0, RED)):
    np.testing.assert_array_equal(_mean(pictures.encode(
        palette, 'PNG', transparency=transparent)), colour)


def test_defective_exif_is_ignored():
  data = pictures.encode(
      Image.new('RGB', (8, 8), RED), 'JPEG', exif=b'Exif\0\0II*\0junk')
  np.testing.assert_allclose(_mean(data), RED, atol=4)


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
  places = {*range(0, len(data), 13), *range(len(data) - 24, len(data)),
            *(match.start() for match in re.finditer(b'\xff\x90', data))}
  for place in places:
    try:
      cut = decode.decode(data[:place], channels=3)
    except ValueError:
      continue
    np.testing.assert_array_equal(np.asarray(cut), whole)


@pytest.mark.parametrize('name', EXIF_BOMBS)
def test_of_exif_only_the_orientation_is_read(name):
  with fuzz.limited(60 << 20):
    image = decode.decode(EXIF_BOMBS[name], channels=3)
  assert image.size == (33, 24)


@pytest.mark.parametrize('form', ['JPEG', 'PNG', 'WEBP', 'TIFF', 'AVIF', 'MPO'])
def test_orientations_are_those_of_pillow(form):
  exif = Image.Exif()
  exif[0x010f] = 'maker'  # Before and after the orientation.
  exif.get_ifd(0x8769)[0x9286] = 'comment'
  for orientation in range(1, 9):
    exif[0x0112] = orientation
    data = pictures.encode(hostile.picture(), form, exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    np.testing.assert_array_equal(
        np.asarray(decode.decode(data, channels=3)), np.asarray(expected))
    np.testing.assert_array_equal(multichannel.decode(
        data, channels=3, dtype='uint8').pixels, np.asarray(expected))


@pytest.mark.parametrize('name', BAD)
def test_bad_files_are_described_errors_and_allocate_little_memory(name):
  data, message = BAD[name]

  def fails_within_limits():
    with fuzz.limited(200 << 20), pytest.raises(ValueError, match=message):
      decode.decode(data, channels=3)

  try:
    fails_within_limits()
  except AssertionError:  # A thread of another test may have used memory, once.
    fails_within_limits()
  with pytest.raises(ValueError, match=message):
    multichannel.decode(data, channels=3, dtype='uint8')


@pytest.mark.parametrize('name', [
    'jpeg', 'png', 'webp', 'webp lossless', 'webp animated', 'gif', 'tiff'])
def test_pixels_are_limited_before_decoding(name):
  data = GOOD[name]
  decode.decode(data, channels=3, max_pixels=24 * 33)
  with pytest.raises(ValueError, match=r'24 x 33 pixels, 792.*max_pixels'):
    decode.decode(data, channels=3, max_pixels=24 * 33 - 1)


def _read(item):
  if item == 3:
    raise ValueError('three')
  return 10 * item


def test_chunks_keep_the_order_and_hold_the_expected_errors():
  chunks = list(decode.read_chunks(
      range(7), _read, size=3, errors=(ValueError,)))
  assert [found for found, _ in chunks] == [
      [(0, 0), (1, 10), (2, 20)], [(4, 40), (5, 50)], [(6, 60)]]
  (item, error), = [one for _, failed in chunks for one in failed]
  assert item == 3 and str(error) == 'three'
  with pytest.raises(ValueError, match='three'):
    list(decode.read_chunks(range(7), _read, size=3, errors=(OSError,)))
