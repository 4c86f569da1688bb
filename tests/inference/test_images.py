"""Reading and preprocessing of images, and errors for anything else."""


import numpy as np
import pytest

from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.inference import images as images_lib

PREPROCESS = preprocessing_lib.Preprocess(resolution=(32, 32))


def test_an_image_that_exceeds_the_memory_is_unreadable(monkeypatch):
  errors, read = [], images_lib.read

  def exhaust_memory(image, preprocess):
    if isinstance(image, str):
      raise MemoryError
    return read(image, preprocess)

  monkeypatch.setattr(images_lib, 'read', exhaust_memory)
  (sources, _), = images_lib.batches(
      ['large.png', np.zeros((32, 32, 3), np.uint8)], PREPROCESS, size=2,
      on_error=lambda image, error: errors.append(image))
  assert errors == ['large.png'] and len(sources) == 1


@pytest.mark.parametrize(('shape', 'channels', 'single'), [
    ((8, 8, 13), 13, True), ((2, 8, 8, 13), 13, False), ((8, 8, 3), 3, True),
    ((3, 8, 8, 3), 3, False), ((8, 8), 1, True), ((8, 8, 1), 1, True),
    ((2, 8, 8, 1), 1, False)])
def test_an_array_is_an_image_or_a_batch_with_the_channels_of_the_model(
    shape, channels, single):
  assert images_lib.is_single(
      np.zeros(shape, np.uint8), channels=channels) == single


@pytest.mark.parametrize(('shape', 'channels', 'hint'), [
    ((3, 8, 8), 3, 'moveaxis'), ((2, 3, 8, 8), 3, 'moveaxis'),
    ((1, 8, 8), 1, 'moveaxis'), ((13, 8, 8), 13, 'moveaxis'),
    ((8, 8), 3, 'fromarray'), ((8, 3), 3, 'fromarray'),
    ((8, 8, 1), 3, 'fromarray'), ((8, 8, 4), 3, 'fromarray'),
    ((8, 8, 3), 1, 'fromarray'), ((5, 8, 8), 1, ''), ((8,), 3, ''), ((), 3, ''),
    ((8, 8, 13), 3, ''), ((1, 2, 8, 8, 3), 3, '')])
def test_channels_come_last(shape, channels, hint):
  with pytest.raises(ValueError) as error:
    images_lib.is_single(np.zeros(shape, np.uint8), channels=channels)
  words = str(error.value)
  assert f'be [height, width, {channels}]' in words
  assert f'is {list(shape)}. Channels come last.' in words
  assert hint in words and ('Use' in words or 'PIL' in words) == bool(hint)


@pytest.mark.parametrize(('image', 'message'), [
    (np.zeros((3, 32, 32), np.uint8), r'is \[3, 32, 32\]. Channels come last'),
    (np.full((32, 32, 3), 7.0), 'from 7 to 7. Divide it by 255'),
    (np.full((32, 32, 3), np.nan), 'from nan to nan'),
    (np.zeros((32, 32, 3), np.int32), 'but is int32'),
    (np.zeros((32, 32, 3), np.uint16), 'array / 65535'),
    (np.zeros((0, 4, 3), np.uint8), 'has no pixels')])
def test_other_arrays_are_errors(image, message):
  with pytest.raises(ValueError, match=message):
    images_lib.read(image, PREPROCESS)


def test_files_that_are_not_images_are_errors_with_their_path(tmp_path):
  path = tmp_path / 'notes.jpg'
  path.write_text('text')
  with pytest.raises(ValueError, match='notes.jpg: not an image'):
    images_lib.read(path, PREPROCESS)
  with pytest.raises(FileNotFoundError, match='missing.jpg'):
    images_lib.read(tmp_path / 'missing.jpg', PREPROCESS)
