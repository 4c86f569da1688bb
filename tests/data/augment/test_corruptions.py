"""Corruptions of images agree with Pillow and with simple formulas."""

import colorsys
import io

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from vit_jax.data.augment import corruptions


def smooth(side, channels=3):
  """Returns a photo-like uint8 image [side, side, channels]."""
  noise = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
  image = Image.fromarray(noise).resize((side, side), Image.Resampling.BICUBIC)
  return np.array(image)[..., :channels]


def corrupt(image, name, severity, *, key=0):
  """Returns the corrupted uint8 image in levels of 0 ... 255."""
  found = corruptions.corrupt(
      jnp.asarray(image[None], jnp.float32) / 255, jax.random.key(key)[None],
      name=name, severity=severity)
  return 255 * np.asarray(found)[0]


@pytest.mark.parametrize('name', corruptions.CORRUPTIONS)
def test_the_change_grows_with_the_severity(name):
  image = smooth(32)
  changes = [np.abs(corrupt(image, name, severity) - image).mean()
             for severity in (1, 3, 5)]
  assert 0 <= changes[0] < changes[1] < changes[2]


@pytest.mark.parametrize(('severity', 'side'), [(1, 32), (5, 32), (3, 96)])
def test_jpeg_is_that_of_pillow_up_to_rounding(severity, side):
  image, file = smooth(side), io.BytesIO()
  quality = corruptions.CORRUPTIONS['jpeg'][1 + (side < 85)][severity - 1]
  Image.fromarray(image).save(file, 'JPEG', quality=quality)
  expected = np.asarray(Image.open(file), np.float32)
  error = np.abs(corrupt(image, 'jpeg', severity) - expected).mean()
  assert error < 2 and error < np.abs(expected - image).mean() / 2


@pytest.mark.parametrize('severity', [1, 5])
def test_pixels_are_those_of_two_box_resizes_of_pillow(severity):
  image = Image.fromarray(smooth(32))
  factor = corruptions.CORRUPTIONS['pixelate'][2][severity - 1]
  small = image.resize((int(32 * factor),) * 2, Image.Resampling.BOX)
  expected = np.asarray(
      small.resize((32, 32), Image.Resampling.BOX), np.float32)
  found = corrupt(np.asarray(image), 'pixelate', severity)
  assert np.abs(found - expected).max() <= 1.01


def test_brightness_adds_to_the_value_of_hsv():
  image = smooth(32)
  image[0, 0] = 0
  for row, column in ((0, 0), (3, 5), (20, 9)):
    hue, saturation, value = colorsys.rgb_to_hsv(*image[row, column] / 255)
    expected = colorsys.hsv_to_rgb(hue, saturation, min(1, value + 0.15))
    np.testing.assert_allclose(
        corrupt(image, 'brightness', 3)[row, column] / 255, expected,
        atol=0.003)


@pytest.mark.parametrize('name', ['defocus_blur', 'motion_blur', 'zoom_blur',
                                  'contrast', 'pixelate', 'jpeg'])
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
