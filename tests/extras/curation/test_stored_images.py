"""Large images are stored smaller; all others are stored unchanged."""

import io
import json
import re

import numpy as np
from PIL import Image
import pytest

from tests import pictures
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax.data.images import decode
from vit_jax.extras.curation import stored_images

SMALLER = stored_images.ImageFormat(shorter_side=12)


def _file(form, mode='RGB', size=(40, 30), **options):
  image = pictures.picture(0, side=40).crop((0, 0, *size)).convert(mode)
  return pictures.encode(image, form, **options)


def _opened(file):
  return Image.open(io.BytesIO(file))


def test_pixels_are_stored_losslessly_as_png():
  for shape in ((5, 4), (5, 4, 1), (5, 4, 3)):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    decoded = _opened(stored_images.ImageFormat().encode(pixels))
    np.testing.assert_array_equal(decoded, pixels.squeeze())
  with pytest.raises(ValueError, match=r'uint16 \[2, 2, 13\]'):
    stored_images.ImageFormat().encode(np.zeros((2, 2, 13), np.uint16))


@pytest.mark.parametrize(('form', 'mode', 'stored', 'as_mode'), [
    ('JPEG', 'RGB', 'JPEG', 'RGB'), ('JPEG', 'L', 'JPEG', 'L'),
    ('JPEG', 'CMYK', 'JPEG', 'RGB'), ('PNG', 'RGB', 'PNG', 'RGB'),
    ('PNG', 'RGBA', 'PNG', 'RGB'), ('PNG', 'P', 'PNG', 'RGB'),
    ('PNG', '1', 'PNG', 'L'), ('WEBP', 'RGB', 'PNG', 'RGB')])
def test_a_large_image_is_reduced(form, mode, stored, as_mode):
  file = _file(form, mode)
  smaller = _opened(SMALLER.encode(file))
  assert (smaller.format, smaller.mode, smaller.size) == (
      stored, as_mode, (16, 12))
  whole = decode.decode(file, channels=3).resize((16, 12))
  apart = np.abs(np.asarray(smaller.convert('RGB'), float) - np.asarray(whole))
  assert apart.mean() < 16


def test_a_rotated_photograph_is_stored_upright():
  exif = Image.Exif()
  exif[0x0112] = 6
  smaller = _opened(SMALLER.encode(_file('JPEG', exif=exif)))
  assert smaller.size == (12, 16) and not smaller.getexif()


@pytest.mark.parametrize('file', [
    _file('JPEG', size=(40, 12)), _file('PNG', size=(12, 12)),
    pictures.encode(Image.new('I;16', (40, 30)), 'PNG'),
    _file('JPEG')[:-200], b'no image'], ids=[
        'small', 'small png', '16 bits', 'cut off', 'no image'])
def test_small_deep_and_unreadable_files_are_stored_unchanged(file):
  assert SMALLER.encode(file) == file
  assert stored_images.ImageFormat().encode(file) == file


def test_a_dataset_is_reduced_and_described(tmp_path):
  for i in range(6):
    pictures.save(
        tmp_path / f'photos/train/{("cat", "dog")[i % 2]}/{i}.jpg',
        pictures.picture(0, side=40).resize((40, 30 - i) if i else (12, 12)))
  assert main.main([
      'data', 'prepare', f'--source={tmp_path}/photos', f'--to={tmp_path}',
      '--name=mine', '--runner=local', '--shorter-side=12']) == 0
  dataset = data.open_dataset(data.parse({
      'source': 'mine', 'data_dir': str(tmp_path), 'split': 'train'}))
  sizes = [_opened(dataset[i]['image']).size for i in range(len(dataset))]
  assert {min(size) for size in sizes} == {12}
  info = json.loads((tmp_path / 'mine/1.0.0/dataset_info.json').read_text())
  assert re.search('more than 12 pixels.*quality 95', info['description'])
