"""Corruptions of images agree with Pillow and with simple formulas."""

import colorsys
import io

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from tests import pictures
from vit_jax.data.augment import corruptions

SMOOTH = pictures.picture(0, side=32)
jitted = jax.jit(
    corruptions.corrupt, static_argnames=('name', 'severity'))


def corrupt(image, name, severity, *, key=0):
  """Returns the corrupted uint8 image in levels of 0 ... 255."""
  found = jitted(
      jnp.asarray(image[None], jnp.float32) / 255, jax.random.key(key)[None],
      name=name, severity=severity)
  return 255 * np.asarray(found)[0]


# The published settings of the others are not ordered by this change.
@pytest.mark.parametrize('name', sorted({*corruptions.CORRUPTIONS} - {
    'elastic_transform', 'frost', 'glass_blur'}))
def test_the_change_grows_with_the_severity(name):
  image = np.array(SMOOTH)
  changes = [np.abs(corrupt(image, name, severity) - image).mean()
             for severity in (1, 5)]
  assert 0 <= changes[0] < changes[1]


@pytest.mark.parametrize(('severity', 'side'), [(1, 32), (5, 32), (3, 96)])
def test_jpeg_is_that_of_pillow_up_to_rounding(severity, side):
  picture, file = pictures.picture(0, side=side), io.BytesIO()
  quality = corruptions.CORRUPTIONS['jpeg'][1 + (side < 85)][severity - 1]
  picture.save(file, 'JPEG', quality=quality)
  image, expected = (
      np.asarray(p, np.float32) for p in (picture, Image.open(file)))
  error = np.abs(corrupt(image, 'jpeg', severity) - expected).mean()
  assert error < 2 and error < np.abs(expected - image).mean() / 2


@pytest.mark.parametrize('severity', [1, 5])
def test_pixels_are_those_of_two_box_resizes_of_pillow(severity):
  factor = corruptions.CORRUPTIONS['pixelate'][2][severity - 1]
  small = SMOOTH.resize((int(32 * factor),) * 2, Image.Resampling.BOX)
  expected = np.asarray(
      small.resize((32, 32), Image.Resampling.BOX), np.float32)
  found = corrupt(np.asarray(SMOOTH), 'pixelate', severity)
  assert np.abs(found - expected).max() <= 1.01


def test_brightness_adds_to_the_value_of_hsv():
  image = np.array(SMOOTH)
  image[0, 0] = 0
  for row, column in ((0, 0), (3, 5), (20, 9)):
    hue, saturation, value = colorsys.rgb_to_hsv(*image[row, column] / 255)
    expected = colorsys.hsv_to_rgb(hue, saturation, min(1, value + 0.15))
    np.testing.assert_allclose(
        corrupt(image, 'brightness', 3)[row, column] / 255, expected,
        atol=0.003)


@pytest.mark.parametrize('name', [
    'defocus_blur', 'glass_blur', 'motion_blur', 'zoom_blur', 'contrast',
    'elastic_transform', 'pixelate', 'jpeg'])
@pytest.mark.parametrize('channels', [1, 3])
def test_an_image_of_one_colour_stays_the_same(name, channels):
  image = np.full((32, 40, channels), 100, np.uint8)
  assert np.abs(corrupt(image, name, 5) - image).max() <= 1.01


def test_noise_has_its_strength_and_depends_on_the_key():
  grey = np.full((128, 128, 3), 128, np.uint8)
  noise = {name: corrupt(grey, name, 1) - grey for name in (
      'gaussian_noise', 'shot_noise', 'impulse_noise')}
  assert noise['gaussian_noise'].std() / 255 == pytest.approx(0.08, rel=0.02)
  # Variance of a Poisson count of mean 60 x 0.5, in units of 60.
  assert noise['shot_noise'].std() / 255 == pytest.approx(
      np.sqrt(30) / 60, rel=0.03)
  assert (noise['impulse_noise'] != 0).mean() == pytest.approx(0.03, rel=0.1)
  again = corrupt(grey, 'gaussian_noise', 1, key=1) - grey
  assert abs(np.corrcoef(again.ravel(), noise['gaussian_noise'].ravel())[0, 1]
             ) < 0.03


def test_glass_mixes_only_neighbours():
  image = np.zeros((96, 96, 3), np.uint8)
  image[:, 48:] = 255
  found = corrupt(image, 'glass_blur', 5)
  # Twice up to 4 pixels, and 4 standard deviations of each blur.
  assert (found[:, :28] == 0).all() and (found[:, 68:] == 255).all()
  assert len(np.unique(found[:, 40:56])) > 100


def test_an_affine_map_moves_three_points_by_at_most_the_shift():
  # At severity 1 for 32 pixels there is no noise.
  image = np.zeros((32, 32, 1), np.uint8)
  for row, column in ((26, 26), (26, 6), (6, 6)):
    image[row, column] = 255
  found = corrupt(image, 'elastic_transform', 1)[..., 0]
  for row, column in ((26, 26), (26, 6), (6, 6)):
    near = found[row - 4:row + 5, column - 4:column + 5]
    assert near.sum() > 100
    centre = (near.sum(1) @ np.arange(-4, 5), near.sum(0) @ np.arange(-4, 5))
    assert np.abs(centre).max() / near.sum() <= 2.56 + 0.1
    found[row - 4:row + 5, column - 4:column + 5] = 0
  assert not found.any()


def test_fog_and_frost_have_their_mean_and_snow_falls():
  grey = np.full((224, 224, 3), 128, np.uint8)
  fog, frost, snow = (
      np.mean([corrupt(grey, name, 3, key=key) for key in range(5)], axis=0)
      for name in ('fog', 'frost', 'snow'))
  # The largest value stays; clouds have a mean of about one half.
  assert fog.max() <= 128 and 0.5 < fog.mean() / 128 < 0.7
  np.testing.assert_allclose(
      frost.mean(axis=(0, 1)),
      0.7 * 128 + 0.7 * 255 * np.array([0.57, 0.65, 0.70]), rtol=0.02)
  # Flakes are blurred along their path, which is nearly vertical.
  assert np.abs(np.diff(snow, axis=0)).mean() < np.abs(
      np.diff(snow, axis=1)).mean()
