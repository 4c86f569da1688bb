"""Reading and preprocessing of images."""

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
