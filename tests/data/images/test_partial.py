"""The crop of a JPEG alone is that of the whole, to a rounding."""

import itertools
import os
import threading
import time

import numpy as np
from PIL import Image
import pytest

from tests import hostile
from vit_jax import data
from vit_jax.data.augment import ops
from vit_jax.data.images import decode
from vit_jax.data.images import partial

needs_libraries = pytest.mark.skipif(
    not partial.is_installed(), reason='requirements-fast.txt is not installed')
# Levels of 255. Both directions of a resize round.
ROUNDING = 2
CROP = ops.InceptionCrop(size=(24, 40))
OPS = [{'op': 'inception_crop'}, {'op': 'flip'}]


def _photo(seed=0, size=(120, 90)):
  """Returns soft colours with a little noise: chroma matters at the edges."""
  rng = np.random.default_rng(seed)
  soft = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
  pixels = np.asarray(soft.resize(size, Image.Resampling.BICUBIC), np.int16)
  noise = rng.integers(-12, 13, pixels.shape)
  return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))


def _crop(data, rng, op=CROP):
  return partial.crop(
      data, (40, 24), ops.METHODS[op.method],
      lambda *size: op.window(*size, rng))


def _apart(a, b):
  """Returns the largest difference of a pixel, in levels of 255."""
  return int(np.abs(np.asarray(a, np.int16) - np.asarray(b, np.int16)).max())


@needs_libraries
@pytest.mark.parametrize('options', [
    {'subsampling': '4:4:4'}, {'subsampling': '4:2:2'},
    {'subsampling': '4:2:0'}, {'quality': 5},
    {'restart_marker_blocks': 2}, {'optimize': True}], ids=str)
def test_a_crop_is_that_of_the_whole(options):
  file = hostile.encode(_photo(), 'JPEG', **options)
  whole = decode.decode(file, channels=3)
  for seed in range(12):
    rng, same = (np.random.default_rng(seed) for _ in range(2))
    assert _apart(_crop(file, rng), CROP(whole, same)) <= ROUNDING
    # What comes next is drawn alike.
    assert rng.random() == same.random()


@needs_libraries
@pytest.mark.parametrize('method', ['bilinear', 'bicubic', 'lanczos'])
@pytest.mark.parametrize('mode', ['RGB', 'L'])
def test_a_crop_is_that_of_the_whole_by_every_filter(method, mode):
  op = ops.InceptionCrop(size=(24, 40), method=method)
  file = hostile.encode(_photo().convert(mode), 'JPEG', quality=90)
  whole = decode.decode(file, channels=3)
  for seed in range(4):
    crop = _crop(file, np.random.default_rng(seed), op)
    assert _apart(crop, op(whole, np.random.default_rng(seed))) <= ROUNDING


def _turned():
  exif = Image.Exif()
  exif[0x0112] = 6
  return hostile.encode(_photo(), 'JPEG', exif=exif)


GOOD = hostile.encode(_photo(), 'JPEG')


@pytest.mark.parametrize('file', [
    hostile.encode(_photo(), 'PNG'),
    hostile.encode(_photo(), 'JPEG', progressive=True),
    hostile.encode(_photo().convert('CMYK'), 'JPEG'),
    _turned(), np.asarray(_photo()),
    GOOD[:-2], GOOD + b'\0', GOOD[:-40] + b'\xff\xc4' + GOOD[-38:]], ids=[
        'png', 'progressive', 'cmyk', 'turned', 'array', 'without an end',
        'with more behind', 'a marker in its scan'])
def test_what_is_no_plain_jpeg_is_read_whole(file):
  def draw(*size):
    raise AssertionError(size)

  assert partial.crop(file, (8, 8), Image.Resampling.BILINEAR, draw) is None


@needs_libraries
def test_a_scan_that_ends_early_is_filled_up_as_by_pillow():
  file = GOOD[:len(GOOD) // 2] + b'\xff\xd9'
  whole = decode.decode(file, channels=3)
  for seed in range(4):
    crop = _crop(file, np.random.default_rng(seed))
    assert _apart(crop, CROP(whole, np.random.default_rng(seed))) <= ROUNDING


def test_a_header_that_promises_too_much_is_an_error_at_once():
  with pytest.raises(ValueError, match='pixels'):
    partial.crop(GOOD, (8, 8), Image.Resampling.BILINEAR, CROP.window,
                 max_pixels=100)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Returns a folder of JPEGs and others, one of them without an end."""
  root = tmp_path_factory.mktemp('photos')
  for number in range(8):
    path = root / str(number % 2) / f'{number}.jpg'
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(hostile.encode(
        _photo(number), 'PNG' if number == 3 else 'JPEG'))
  (root / '1' / '9.jpg').write_bytes(GOOD[:len(GOOD) // 2])
  return root


def _batches(folder, **settings):
  config = data.parse({
      'source': str(folder), 'split': 'train+test', 'resolution': 16,
      'train_ops': OPS, 'unreadable': 'skip', 'max_unreadable': 1.0,
      **settings})
  tally = data.Tally(max_share=1.0, log=data.UnreadableLog(lambda text: None))
  batches = data.train_batches(
      config, data.open_dataset(config), seed=3, batch_size=9, tally=tally)
  taken = list(itertools.islice(batches, 4))
  batches.close()
  return taken, tally


@needs_libraries
def test_a_batch_is_the_same_with_and_without(folder):
  (fast, counted), (slow, expected) = (
      _batches(folder, decoder=name) for name in ('auto', 'pillow'))
  apart = [_apart(a['image'], b['image']) for a, b in zip(fast, slow)]
  # Not 0: else both were decoded whole.
  assert 0 < max(apart) <= ROUNDING
  for a, b in zip(fast, slow):
    assert a['label'].tolist() == b['label'].tolist()
  assert counted.count == expected.count > 0
  assert counted.log.found == expected.log.found


@needs_libraries
def test_a_jpeg_whose_crop_does_not_decode_is_read_whole(
    folder, monkeypatch):
  expected, _ = _batches(folder, decoder='pillow')
  monkeypatch.setattr(partial._Tools, 'decode', lambda *args: None)
  for a, b in zip(_batches(folder)[0], expected, strict=True):
    np.testing.assert_array_equal(a['image'], b['image'])


def test_without_the_libraries_all_is_decoded_by_pillow(folder, monkeypatch):
  expected, _ = _batches(folder, decoder='pillow')
  monkeypatch.setattr(partial, 'PACKAGES', ('no_such_package',))
  for a, b in zip(_batches(folder)[0], expected, strict=True):
    np.testing.assert_array_equal(a['image'], b['image'])


def test_a_run_says_how_it_decodes(monkeypatch):
  monkeypatch.setattr(partial, 'PACKAGES', ('no_such_package',))
  config = data.parse({'train_ops': OPS})
  assert 'requirements-fast.txt' in config.decoder_note
  monkeypatch.setattr(partial, 'PACKAGES', ('PIL',))
  assert 'no more than the crop' in config.decoder_note
  for other in ({'decoder': 'pillow'}, {'channels': 1}, {'cache_mib': 1},
                {'train_ops': [{'op': 'resize'}]}):
    assert not data.parse({'train_ops': OPS, **other}).decoder_note


def test_threads_that_are_quiet_at_once_leave_errors_to_be_seen():
  before = os.fstat(2)

  def load():
    with partial._quiet():
      time.sleep(0.05)

  threads = [threading.Thread(target=load) for _ in range(2)]
  for thread in threads:
    thread.start()
    time.sleep(0.02)
  for thread in threads:
    thread.join()
  after = os.fstat(2)
  assert (after.st_dev, after.st_ino) == (before.st_dev, before.st_ino)
