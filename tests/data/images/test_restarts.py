"""What is cut out of a JPEG is what the whole has there, bit by bit."""

import io

import hypothesis
from hypothesis import strategies as st
import numpy as np
from PIL import Image
import pytest

from tests import hostile
from vit_jax.data.augment import ops
from vit_jax.data.images import decode
from vit_jax.data.images import partial
from vit_jax.data.images import restarts


def _photo(size, mode='RGB', seed=0):
  rng = np.random.default_rng(seed)
  soft = Image.fromarray(rng.integers(0, 256, (7, 9, 3), dtype=np.uint8))
  noise = rng.integers(-9, 10, (*size[::-1], 3))
  pixels = np.asarray(soft.resize(size, Image.Resampling.BICUBIC), np.int16)
  return Image.fromarray(
      np.clip(pixels + noise, 0, 255).astype(np.uint8)).convert(mode)


def _jpeg(size, mode='RGB', **options):
  options = {'restart_marker_blocks': 1, **options}
  return hostile.encode(_photo(size, mode), 'JPEG', **options)


def _pixels(file):
  return np.asarray(Image.open(io.BytesIO(file)))


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(
    width=st.integers(1, 90), height=st.integers(1, 70),
    mode=st.sampled_from(['RGB', 'L']),
    subsampling=st.sampled_from(['4:4:4', '4:2:2', '4:2:0', '4:1:1']),
    edges=st.tuples(*[st.floats(0, 1)] * 4))
def test_a_region_has_the_pixels_of_the_whole(
    width, height, mode, subsampling, edges):
  file = _jpeg((width, height), mode, subsampling=subsampling)
  left, right = sorted(int(edge * (width - 1)) for edge in edges[:2])
  top, bottom = sorted(int(edge * (height - 1)) for edge in edges[2:])
  region = left, top, right + 1, bottom + 1
  smaller, (x, y) = restarts.cut(file, restarts.find(file), region)
  there = _pixels(smaller)[top - y:bottom + 1 - y, left - x:right + 1 - x]
  assert np.array_equal(
      there, _pixels(file)[top:bottom + 1, left:right + 1])


@pytest.mark.parametrize('beyond', [1, 2, 3, 4, 5])
def test_the_last_columns_have_their_neighbours_colours(beyond):
  # Alone, an image of up to 4 pixels' width has its colours not smoothed.
  file = _jpeg((48 + beyond, 32), subsampling='4:2:0')
  for left in range(44, 48 + beyond):
    region = left, 3, 48 + beyond, 30
    smaller, (x, y) = restarts.cut(file, restarts.find(file), region)
    there = _pixels(smaller)[3 - y:30 - y, left - x:]
    assert np.array_equal(there, _pixels(file)[3:30, left:])


def test_what_lies_outside_is_left_out():
  file = _jpeg((320, 240))
  smaller, corner = restarts.cut(
      file, restarts.find(file), (100, 100, 120, 110))
  assert corner == (96, 96)
  # Pixel 120 has a neighbour, 120: all in the blocks from 96 to 127.
  assert _pixels(smaller).shape == (16, 32, 3)
  assert len(smaller) < len(file) / 10


@pytest.mark.parametrize('options', [
    {'restart_marker_blocks': 0}, {'restart_marker_blocks': 2},
    {'progressive': True, 'restart_marker_blocks': 0}], ids=str)
def test_what_does_not_restart_with_its_rows_is_not_found(options):
  # Of 48 pixels at 4:2:0 three blocks are a row: two do not divide them.
  assert restarts.find(_jpeg((48, 32), **options)) is None


def test_rows_may_restart_at_every_so_many_blocks():
  file = _jpeg((64, 32), restart_marker_blocks=2)
  smaller, corner = restarts.cut(file, restarts.find(file), (40, 0, 50, 10))
  assert corner == (32, 0)
  assert np.array_equal(
      _pixels(smaller)[:10, 8:18], _pixels(file)[:10, 40:50])


def test_restarts_that_are_not_one_after_the_other_are_not_cut():
  file = bytearray(_jpeg((64, 32)))
  header = restarts.find(bytes(file))
  at = file.index(b'\xff\xd1', header.scan)
  for number in (2, 0):  # One is left out; one comes twice.
    file[at + 1] = 0xd0 + number
    assert restarts.cut(bytes(file), header, (0, 0, 64, 32)) is None
  del file[at:at + 2]
  assert restarts.cut(bytes(file), header, (0, 0, 64, 32)) is None


def test_training_crops_it_without_other_libraries_as_pillow_does(monkeypatch):
  monkeypatch.setattr(partial, 'is_installed', lambda: False)
  op = ops.InceptionCrop(size=(24, 40))
  file = _jpeg((120, 90))
  whole = decode.decode(file, channels=3)
  for seed in range(12):
    rng, same = (np.random.default_rng(seed) for _ in range(2))
    part = partial.crop(
        file, (40, 24), Image.Resampling.BILINEAR,
        lambda *size, rng=rng: op.window(*size, rng))
    expected = np.asarray(op(whole, same), np.int16)
    # The same sums of the same pixels, of a box that begins elsewhere.
    assert np.abs(np.asarray(part, np.int16) - expected).max() <= 1
    assert rng.random() == same.random()


@hypothesis.settings(deadline=None, max_examples=150)
@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)),
             min_size=1, max_size=6), st.integers(0, 10**6))
def test_a_damaged_file_is_cut_or_left_but_never_an_error(changes, end):
  file = bytearray(_jpeg((40, 24), quality=30))
  for at, value in changes:
    file[at % len(file)] = value
  file = bytes(file[:end % (3 * len(file)) or None])
  header = restarts.find(file)
  if header is not None:
    restarts.cut(file, header, (8, 8, 30, 20))


def test_metadata_is_left_to_pillow_which_knows_of_turned_images():
  exif = Image.Exif()
  exif[0x0112] = 6
  for options, is_bare in (({}, True), ({'exif': exif}, False),
                           ({'icc_profile': b'profile'}, False)):
    assert restarts.find(_jpeg((64, 32), **options)).is_bare == is_bare
  turned = _jpeg((64, 32), exif=exif)
  assert partial.crop(turned, (8, 8), Image.Resampling.BILINEAR,
                      lambda *size: (0, 0, *size)) is None
  profiled = _jpeg((64, 32), icc_profile=b'profile')
  assert partial.crop(profiled, (8, 8), Image.Resampling.BILINEAR,
                      lambda *size: (0, 0, *size)).size == (8, 8)


def test_what_follows_the_scan_or_lacks_its_end_is_not_cut():
  file = _jpeg((64, 32))
  header = restarts.find(file)
  for other in (file[:-2], file + b'\0', file[:-40] + b'\xff\xc4' + file[-38:]):
    assert restarts.cut(other, header, (0, 0, 8, 8)) is None


def test_a_header_that_promises_too_much_is_an_error_at_once():
  with pytest.raises(ValueError, match='pixels'):
    partial.crop(_jpeg((64, 32)), (8, 8), Image.Resampling.BILINEAR,
                 lambda *size: (0, 0, *size), max_pixels=100)
