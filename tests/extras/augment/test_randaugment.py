"""RandAugment in both definitions, against independent formulas."""

import numpy as np
from PIL import Image
import pytest

from vit_jax.extras.augment import randaugment


def _noise(height, width, mode='RGB'):
  pixels = np.random.default_rng(0).integers(
      0, 256, (height, width, 3), dtype=np.uint8)
  return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize('name', list(randaugment.GROWING))
@pytest.mark.parametrize('mode', ['L', 'RGB'])
def test_size_and_mode_are_kept_and_magnitude_increases_the_change(name, mode):
  y, x = np.mgrid[:32, :32]
  ripple = 20 * np.sin(1.3 * x) * np.cos(1.7 * y)
  image = Image.fromarray((ripple[..., None] + np.stack(
      [x * 5 + 40, y * 5 + 30, (x + y) * 2 + 50], -1)).astype(np.uint8))
  image = image.convert(mode)
  op = randaugment.GROWING[name]

  def change(strength):
    result = op(image, strength)
    assert result.size == image.size and result.mode == mode
    return np.abs(np.asarray(result, float) - np.asarray(image)).mean()

  assert change(1.0) >= change(0.3) >= 0
  is_neutral = name == 'identity' or (name == 'color' and mode == 'L')
  assert (change(1.0) == 0) == is_neutral


def _published(name, image, magnitude, sign=1):
  strength = magnitude / 10
  return np.asarray(randaugment.PUBLISHED[name](
      image, strength, sign * strength, np.random.default_rng(1)))


# What the authors' code computes with uint8 tensors: the threshold of
# solarisation (256, 384 and 512 wrap), and the bits that posterising drops (a
# shift by 8 is one by 7).
@pytest.mark.parametrize('magnitude,threshold,shift', [
    (0, 0, 7), (2, 51, 7), (10, 0, 4), (15, 128, 2), (20, 0, 0)])
@pytest.mark.parametrize('mode', ['L', 'RGB'])
def test_published_pixel_operations_match_their_formulas(
    magnitude, threshold, shift, mode):
  image = _noise(24, 32, mode)
  x = np.asarray(image).astype(int)
  factor = 0.18 * magnitude + 0.1
  np.testing.assert_array_equal(_published('invert', image, magnitude), 255 - x)
  np.testing.assert_array_equal(
      _published('solarize', image, magnitude),
      np.where(x < threshold, x, 255 - x))
  np.testing.assert_array_equal(
      _published('posterize', image, magnitude), x >> shift << shift)
  np.testing.assert_array_equal(
      _published('solarize_add', image, magnitude),
      np.where(x < 128, np.minimum(x + 11 * magnitude, 255), x))
  np.testing.assert_allclose(
      _published('brightness', image, magnitude), np.clip(factor * x, 0, 255),
      atol=1)
  np.testing.assert_allclose(
      _published('contrast', image, magnitude),
      np.clip(196 + factor * (x - 196), 0, 255), atol=1)


def test_published_shears_and_rotations_take_the_nearest_pixel():
  image = _noise(24, 32)
  x = np.pad(np.asarray(image), ((40, 40), (40, 40), (0, 0)),
             constant_values=128)
  rows, columns = np.mgrid[:24, :32].astype(float)
  turn, (row, column) = np.radians(21), (11.5, 15.5)
  # TensorFlow numbers pixels by their centres. No pixel lies between two.
  for name, sign, source in [
      ('shear_x', 1, (rows, columns + 0.21 * rows)),
      ('shear_x', -1, (rows, columns - 0.21 * rows)),
      ('shear_y', 1, (rows + 0.21 * columns, columns)),
      ('rotate', 1, (
          row + np.sin(turn) * (columns - column) + np.cos(turn) * (rows - row),
          column + np.cos(turn) * (columns - column)
          - np.sin(turn) * (rows - row)))]:
    row_of, column_of = (np.floor(s + 0.5).astype(int) for s in source)
    np.testing.assert_array_equal(
        _published(name, image, 7, sign), x[row_of + 40, column_of + 40], name)


def test_published_geometry_matches_its_reference():
  image = Image.new('L', (224, 224), 255)
  moved = _published('translate_x', image, 10)
  assert (moved == 128).all(0).sum() == pytest.approx(100, abs=1)
  box = _published('cutout', image, 10) == 128
  assert box.sum() == box.any(1).sum() * box.any(0).sum()
  sides = [(np.asarray(randaugment.PUBLISHED['cutout'](
      image, 1.0, 1.0, np.random.default_rng(i))) == 128).any(1).sum()
           for i in range(20)]
  assert max(sides) == 80
  np.testing.assert_array_equal(
      _published('rotate', image, 10, sign=-1),
      _published('rotate', image, 10)[:, ::-1])


def test_the_magnitude_varies_by_its_deviation_within_its_range(monkeypatch):
  seen, image = [], _noise(4, 4)
  monkeypatch.setattr(randaugment, 'GROWING', {
      'spy': lambda image, s: seen.append(abs(s)) or image})
  op = randaugment.RandAugment(num_layers=9000, magnitude=9, magnitude_std=0.5)
  op(image, np.random.default_rng(0))
  assert np.median(seen) == pytest.approx(0.9, abs=0.003)
  assert np.percentile(seen, 16) == pytest.approx(0.85, abs=0.003)
  assert max(seen) == 1  # Two deviations above the mean.


def test_without_noise_the_draws_are_the_operations_and_a_sign_each():
  image, rng, again = _noise(4, 4), *map(np.random.default_rng, (0, 0))
  randaugment.RandAugment(num_layers=2, magnitude=9)(image, rng)
  again.integers(len(randaugment.GROWING), size=2)
  again.random(2)
  assert rng.random() == again.random()
