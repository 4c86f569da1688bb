"""Pictures in, arrays in a model's value range out; what is none is said."""

import dataclasses

import numpy as np
import pytest

from vit_jax.inference import images as images_lib
from vit_jax.weights.configs import preprocessing as preprocessing_lib

PREPROCESS = preprocessing_lib.Preprocess(resolution=(32, 32))


def test_a_picture_that_there_is_no_memory_for_is_one_that_cannot_be_read(
    monkeypatch):
  failed, read = [], images_lib.read

  def greedy(picture, preprocess):
    if isinstance(picture, str):
      raise MemoryError
    return read(picture, preprocess)

  monkeypatch.setattr(images_lib, 'read', greedy)
  batch, = images_lib.batches(
      ['large.png', np.zeros((32, 32, 3), np.uint8)], PREPROCESS, size=2,
      failed=lambda picture, error: failed.append(picture))
  assert failed == ['large.png'] and batch.count == 1


def test_an_array_of_as_many_channels_as_the_models_is_one_picture():
  bands = np.zeros((8, 8, 13), np.uint8)
  assert images_lib.is_one(bands, channels=13)
  assert not images_lib.is_one(bands, channels=3)


def test_a_crop_keeps_the_middle():
  preprocess = dataclasses.replace(PREPROCESS, keep_aspect=True, crop=0.5)
  wide = np.zeros((64, 128, 3), np.uint8)
  wide[16:48, 48:80] = 255
  seen = images_lib.show(wide, preprocess)
  assert seen.size == (32, 32)
  assert np.asarray(seen).mean() > 250


def test_a_rectangle_is_cut_from_any_picture():
  preprocess = preprocessing_lib.Preprocess(
      resolution=(32, 64), keep_aspect=True, crop=0.9)
  for size in ((100, 50), (50, 100), (40, 300)):
    assert images_lib.show(
        np.zeros((*size, 3), np.uint8), preprocess).size == (64, 32)


@pytest.mark.parametrize(('picture', 'words'), [
    (np.zeros((3, 32, 32), np.uint8), r'Transpose it to \(1, 2, 0\)'),
    (np.full((32, 32, 3), 7.0), 'from 7 to 7. Divide it by 255'),
    (np.full((32, 32, 3), np.nan), 'from nan to nan'),
    (np.zeros((32, 32, 3), np.int32), 'came as int32'),
    (np.zeros((32, 32, 3), np.uint16), 'array / 65535'),
])
def test_arrays_that_are_no_pictures_are_refused_in_words(picture, words):
  with pytest.raises(ValueError, match=words):
    images_lib.read(picture, PREPROCESS)


def test_a_picture_without_pixels_is_none():
  with pytest.raises(ValueError, match='has no pixels'):
    images_lib.read(np.zeros((0, 4, 3), np.uint8), PREPROCESS)


def test_a_pattern_is_no_file_and_what_it_is_for_is_said():
  with pytest.raises(FileNotFoundError, match=r'no such file.*glob\('):
    images_lib.read('no/such/*.png', PREPROCESS)


def test_a_file_that_is_no_picture_is_named(tmp_path):
  path = tmp_path / 'notes.jpg'
  path.write_text('not a picture')
  with pytest.raises(ValueError, match='notes.jpg: not an image'):
    images_lib.read(path, PREPROCESS)
  with pytest.raises(FileNotFoundError, match='missing.jpg'):
    images_lib.read(tmp_path / 'missing.jpg', PREPROCESS)
  with pytest.raises(ValueError, match='is a folder'):
    images_lib.read(tmp_path, PREPROCESS)
