"""Accuracy on corrupted images."""

import numpy as np
import pytest

IMAGES = np.random.default_rng(0).uniform(
    0, 1, (7, 8, 8, 3)).round(2).astype(np.float32)
SCALE = (np.float32([0.4, 0.5, 0.6]), np.float32(0.2))
NORMALISED = (IMAGES - SCALE[0]) / SCALE[1]
# The brightest channel.
LABELS = NORMALISED.mean(axis=(1, 2)).argmax(-1)
SECTION = {'name': 'corruptions', 'severities': [1, 5],
           'corruptions': ['gaussian_noise', 'contrast', 'motion_blur']}


def predict(params, batch):
  return {'logits': params['scale'] * batch['image'].mean(axis=(1, 2))}


def build(toy, **split):
  return toy(SECTION, toy.split(
      NORMALISED, LABELS, garbage=0.0, num_classes=3,
      **{'pixel_scale': SCALE, **split}), predict=predict)


def test_accuracies_do_not_depend_on_the_batch_size(toy):
  results = [build(toy, size=size)(toy.params)
             for size in (2, 7)]
  for result in results:
    table = result.tables['corruptions']
    assert table.shape == (3, 2) and result.class_names == (
        'gaussian_noise', 'contrast', 'motion_blur')
    np.testing.assert_array_equal(
        table, results[0].tables['corruptions'])
    # Means, and so their order, are those of the images.
    assert table[1, 0] == result.metrics['accuracy'] == 1
    assert result.metrics['accuracy_corrupted'] == pytest.approx(table.mean())
    assert result.metrics['mean_corruption_error'] == pytest.approx(
        1 - table.mean())
    assert result.metrics['examples'] == 7


def test_other_than_8_bit_images_are_an_error(toy):
  with pytest.raises(ValueError, match='corrupts 8-bit grey or RGB images'):
    build(toy, pixel_scale=None)
