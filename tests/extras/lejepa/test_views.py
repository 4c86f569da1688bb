"""Random views against Pillow and by their properties."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
from PIL import ImageEnhance
import pytest

from vit_jax.extras.lejepa import views as views_lib

BYTES = np.random.default_rng(0).integers(60, 180, (2, 12, 16, 3), np.uint8)
PIXELS = jnp.asarray(BYTES / 255, jnp.float32)
KEY = jax.random.key(1)
PLAIN = {'flip': 0.0, 'jitter_probability': 0.0, 'grayscale': 0.0}


@functools.cache
def jitted(**settings):
  return jax.jit(functools.partial(views_lib.draw, views_lib.ViewsConfig(
      **{'local_size': 8, 'num_local': 3, **settings})))


def draw(key=KEY, **settings):
  return jax.device_get(jitted(**settings)(PIXELS, key))


def test_crops_are_those_of_pillow():
  # Left, top, right, bottom in pixels: whole, smaller, and enlarged crops.
  boxes = [(0, 0, 16, 12), (2, 1, 14, 11), (4.5, 3, 9, 8)]
  fractions = jnp.asarray([[[top / 12, left / 16, (bottom - top) / 12,
                             (right - left) / 16]
                            for left, top, right, bottom in boxes]] * 2)
  crop = jax.jit(views_lib.crop, static_argnums=2)
  found = jax.device_get(crop(PIXELS, fractions, (8, 8)))
  for image, row in zip(BYTES, found):
    for box, view in zip(boxes, row):
      expected = np.asarray(Image.fromarray(image).resize(
          (8, 8), Image.Resampling.BILINEAR, box=box)) / 255
      # Pillow rounds to bytes, and at edges reads no pixels outside the box.
      np.testing.assert_allclose(
          view[2:-2, 2:-2], expected[2:-2, 2:-2], atol=1.5 / 255)
  whole = crop(PIXELS, fractions[:, :1], (12, 16))
  np.testing.assert_allclose(whole[:, 0], PIXELS, atol=1e-6)


def test_crops_lie_in_the_image_and_have_the_given_areas():
  area, aspect = (0.1, 0.5), (0.5, 2.0)
  top, left, height, width = np.moveaxis(jax.device_get(views_lib.draw_boxes(
      KEY, (500, 4), area=area, aspect=aspect)), -1, 0)
  assert min(top.min(), left.min()) >= 0
  assert max((top + height).max(), (left + width).max()) <= 1 + 1e-6
  found, ratio = height * width, width / height
  assert area[0] - 1e-6 <= found.min() < 0.11
  assert 0.45 < found.max() <= area[1] + 1e-6
  assert found.mean() == pytest.approx(0.3, abs=0.02)
  assert np.log(ratio).mean() == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize('factors', [
    (1.3, 1, 1), (1, 0.6, 1), (1, 1, 0.5), (0.8, 0.7, 0.6)])
def test_colours_change_as_in_pillow(factors):
  brightness, contrast, saturation = factors
  luma = jnp.broadcast_to(jnp.asarray(views_lib.LUMA), (3, 3))
  matrix = saturation * jnp.eye(3) + (1 - saturation) * luma
  found = jax.jit(views_lib.change_colours)(
      PIXELS[:, None], jnp.broadcast_to(
          jnp.asarray(factors[:2], jnp.float32), (2, 1, 2)),
      jnp.broadcast_to(matrix, (2, 1, 3, 3)))
  for image, view in zip(BYTES, found[:, 0]):
    expected = Image.fromarray(image)
    for kind, factor in ((ImageEnhance.Brightness, brightness),
                         (ImageEnhance.Contrast, contrast),
                         (ImageEnhance.Color, saturation)):
      expected = kind(expected).enhance(factor)
    # Pillow rounds after each of them.
    np.testing.assert_allclose(view, np.asarray(expected) / 255, atol=3 / 255)


def test_hue_turns_about_the_grey_axis():
  third = views_lib.turn_hue(jnp.asarray([1 / 3, 0]))
  np.testing.assert_allclose(
      third[0] @ jnp.asarray([0.5, 0.2, 0.1]), [0.1, 0.5, 0.2], atol=1e-6)
  np.testing.assert_allclose(third[1], np.eye(3), atol=1e-6)


def test_views_depend_on_the_key_and_differ_from_each_other():
  first, again, other = draw(), draw(), draw(key=jax.random.key(2))
  assert first['global_views'].shape == (2, 2, 12, 16, 3)
  assert first['local_views'].shape == (2, 3, 8, 8, 3)
  for name in first:
    np.testing.assert_array_equal(first[name], again[name])
    assert not np.allclose(first[name], other[name])
    pixels = first[name]
    assert pixels.min() >= 0 and pixels.max() <= 1 + 1e-6
    for i in range(1, pixels.shape[1]):
      assert not np.allclose(pixels[:, i], pixels[:, 0])
  assert {*jax.eval_shape(jitted(num_local=0), PIXELS, KEY)} == {'global_views'}


@pytest.mark.slow  # Compiles three pipelines.
def test_probabilities_of_one_change_every_view():
  grey = draw(grayscale=1.0)['local_views']
  np.testing.assert_allclose(grey, grey[..., :1].repeat(3, -1), atol=1e-5)
  plain = draw(**PLAIN)['global_views']
  mirrored = draw(**{**PLAIN, 'flip': 1.0})['global_views']
  np.testing.assert_allclose(mirrored, plain[:, :, :, ::-1], atol=1e-6)
