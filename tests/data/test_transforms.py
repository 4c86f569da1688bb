"""Every colour mode decodes, every operation keeps its promise."""

import io

import numpy as np
from PIL import Image
import pytest

from vit_jax.data import transforms

RED = (200, 30, 40)


def _rng(seed=0):
  return np.random.default_rng(seed)


def _encode(image, file_format, **options):
  buffer = io.BytesIO()
  image.save(buffer, file_format, **options)
  return buffer.getvalue()


def _picture(height=40, width=60, seed=0):
  pixels = _rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
  return Image.fromarray(pixels)


def _mean(data, channels=3):
  image = transforms.decode(data, channels=channels)
  return np.asarray(image, np.float64).reshape(-1, channels).mean(0)


@pytest.mark.parametrize('file_format', ['JPEG', 'PNG', 'WEBP', 'BMP', 'GIF'])
def test_each_format_gives_the_colour_that_was_written(file_format):
  data = _encode(Image.new('RGB', (20, 10), RED), file_format)
  image = transforms.decode(data, channels=3)
  assert image.size == (20, 10) and image.mode == 'RGB'
  np.testing.assert_allclose(_mean(data), RED, atol=4)


@pytest.mark.parametrize('mode', ['RGB', 'P', 'RGBA', 'CMYK', 'YCbCr'])
def test_each_colour_mode_gives_the_colour_that_was_written(mode):
  image = Image.new('RGB', (8, 8), RED).convert(mode)
  file_format = {'CMYK': 'JPEG', 'YCbCr': 'JPEG'}.get(mode, 'PNG')
  np.testing.assert_allclose(
      _mean(_encode(image, file_format)), RED, atol=6)


@pytest.mark.parametrize('mode,value', [('L', 90), ('LA', (90, 255)), ('1', 1)])
def test_grey_modes_become_equal_channels(mode, value):
  data = _encode(Image.new(mode, (8, 8), value), 'PNG')
  np.testing.assert_allclose(_mean(data), [255 if mode == '1' else 90] * 3)


def test_sixteen_bits_keep_their_upper_eight():
  values = np.array([[0, 256, 0x7fff, 0xffff]], np.uint16)
  image = transforms.decode(
      _encode(Image.fromarray(values), 'PNG'), channels=1)
  assert np.asarray(image).tolist() == [[0, 1, 127, 255]]


@pytest.mark.parametrize('mode,clear', [('RGBA', (0, 0, 0, 0)), ('LA', (0, 0))])
def test_transparency_is_laid_on_white(mode, clear):
  data = _encode(Image.new(mode, (8, 8), clear), 'PNG')
  np.testing.assert_array_equal(_mean(data), [255] * 3)


def test_transparent_palette_entry_is_laid_on_white():
  image = Image.new('P', (8, 8), 1)
  image.putpalette([0, 0, 0] + list(RED))
  np.testing.assert_array_equal(
      _mean(_encode(image, 'PNG', transparency=1)), [255] * 3)
  np.testing.assert_allclose(
      _mean(_encode(image, 'PNG', transparency=0)), RED)


@pytest.mark.parametrize('orientation', range(1, 9))
def test_every_exif_orientation_is_turned_upright(orientation):
  upright = np.zeros((8, 16, 3), np.uint8)
  upright[:4, :4] = 255  # A mark in the upper left corner.
  undo = {1: [], 2: [Image.Transpose.FLIP_LEFT_RIGHT],
          3: [Image.Transpose.ROTATE_180],
          4: [Image.Transpose.FLIP_TOP_BOTTOM],
          5: [Image.Transpose.TRANSPOSE], 6: [Image.Transpose.ROTATE_90],
          7: [Image.Transpose.TRANSVERSE], 8: [Image.Transpose.ROTATE_270]}
  image = Image.fromarray(upright)
  for step in undo[orientation]:
    image = image.transpose(step)
  exif = Image.Exif()
  exif[0x0112] = orientation
  data = _encode(image, 'PNG', exif=exif)
  np.testing.assert_array_equal(
      np.asarray(transforms.decode(data, channels=3)), upright)


def test_broken_exif_does_not_lose_the_image():
  data = _encode(
      Image.new('RGB', (8, 8), RED), 'JPEG', exif=b'Exif\0\0II*\0junk')
  np.testing.assert_allclose(_mean(data), RED, atol=4)


@pytest.mark.parametrize('channels,mode', [(1, 'L'), (3, 'RGB')])
@pytest.mark.parametrize('shape', [(5, 7), (5, 7, 1), (5, 7, 3)])
def test_arrays_decode_to_the_channels_asked_for(shape, channels, mode):
  image = transforms.decode(np.full(shape, 9, np.uint8), channels=channels)
  assert image.mode == mode and image.size == (7, 5)
  assert np.unique(np.asarray(image)).tolist() == [9]


def test_truncated_and_foreign_files_are_value_errors():
  data = _encode(_picture(), 'JPEG')
  with pytest.raises(ValueError, match='truncated'):
    transforms.decode(data[:len(data) // 2], channels=3)
  with pytest.raises(ValueError, match='not an image .*12 bytes'):
    transforms.decode(b'hello, world', channels=3)


def _build(*sections, size=(24, 32)):
  return transforms.build(sections, size=size, where='data.train_ops')


@pytest.mark.parametrize('name', ['resize', 'inception_crop', 'central_crop'])
def test_operations_without_a_size_use_the_resolution(name):
  (op,) = _build({'op': name})
  image = op(_picture(), _rng())
  assert transforms.to_array(image, size=(24, 32)).shape == (24, 32, 3)


def test_shorter_side_resize_keeps_the_aspect_ratio():
  (op,) = _build({'op': 'resize', 'shorter': 20})
  assert op(_picture(40, 60), _rng()).size == (30, 20)
  assert op(_picture(60, 40), _rng()).size == (20, 30)


def test_central_crop_takes_the_middle():
  pixels = np.arange(100, dtype=np.uint8).reshape(10, 10)
  (op,) = _build({'op': 'central_crop', 'size': 4})
  np.testing.assert_array_equal(
      np.asarray(op(Image.fromarray(pixels), _rng())), pixels[3:7, 3:7])


def test_central_crop_of_a_small_image_says_to_resize():
  (op,) = _build({'op': 'central_crop', 'size': 50})
  with pytest.raises(ValueError, match='50 x 50 out of an image of 40 x 60.*'
                     '"shorter": 50'):
    op(_picture(), _rng())


def test_inception_crops_have_the_promised_areas_and_shapes():
  op = transforms.InceptionCrop(size=8)
  windows = np.array([op._window(200, 150, _rng(i)) for i in range(500)])
  left, top, width, height = windows.T
  assert (left >= 0).all() and (left + width <= 200).all()
  assert (top >= 0).all() and (top + height <= 150).all()
  area = width * height / (200 * 150)
  assert 0.04 < area.min() < 0.1 and area.max() > 0.8
  assert (width / height > 0.7).all() and (width / height < 1.4).all()


def test_inception_crop_of_a_panorama_stays_inside():
  op = transforms.InceptionCrop(size=8, area=(0.9, 1.0))
  left, top, width, height = op._window(1000, 10, _rng())
  assert (top, height) == (0, 10) and left >= 0 and left + width <= 1000


def test_flip_mirrors_half_of_the_images():
  pixels = np.arange(6, dtype=np.uint8).reshape(1, 6)
  flipped = [np.asarray(transforms.Flip()(Image.fromarray(pixels), _rng(i)))
             for i in range(200)]
  mirrored = sum((f == pixels[:, ::-1]).all() for f in flipped)
  assert all((f == pixels).all() or (f == pixels[:, ::-1]).all()
             for f in flipped)
  assert 70 < mirrored < 130


def test_pad_crop_shifts_and_fills_with_black():
  image = Image.new('L', (16, 16), 255)
  means = [np.asarray(transforms.PadCrop(padding=4)(image, _rng(i))).mean()
           for i in range(50)]
  assert max(means) <= 255 and min(means) >= 255 * (12 / 16) ** 2
  assert len(set(means)) > 5


@pytest.mark.parametrize('section,words', [
    ({'op': 'flop'}, "Unknown data.train_ops\\[0\\].op 'flop'. Did you mean "
     "'flip'"),
    ({'op': 'flip', 'probabilty': 1}, "Did you mean 'probability'"),
    ({'size': 3}, 'needs the key op'),
    ({'op': 'decode'}, 'always comes first'),
    ({'op': 'inception_crop', 'area': (0, 2)}, '0 < low <= high <= 1'),
    ({'op': 'randaugment', 'magnitude': 30}, 'magnitude must lie'),
    ({'op': 'flip', 'probability': 3}, 'probability must lie'),
])
def test_wrong_sections_are_named(section, words):
  with pytest.raises(ValueError, match=words):
    _build(section)


def test_wrong_final_size_is_an_error_that_names_both():
  with pytest.raises(ValueError, match='40 x 60.*24 x 32'):
    transforms.to_array(_picture(), size=(24, 32))
