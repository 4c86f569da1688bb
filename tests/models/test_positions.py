"""Position embeddings that are not learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from vit_jax import tree
from vit_jax.models import factory
from vit_jax.models import positions as positions_lib

RNG = np.random.default_rng(0)
TINY = {'width': 8, 'depth': 2, 'mlp_dim': 12, 'num_heads': 2, 'patch': 4}
GRID = (2, 3)
IMAGES = jnp.asarray(RNG.normal(size=(2, 8, 12, 3)), jnp.float32)


def build(**section):
  return factory.build(factory.parse({**TINY, **section}), num_classes=3)


def randomized(**section):
  return tree.flatten(jax.tree.map(jnp.asarray, random_models.randomize(
      build(**section), IMAGES, scale=0.4, seed=0)))


def apply(params, images=IMAGES, **section):
  return jax.jit(build(**section).apply)(
      {'params': tree.unflatten(params)}, images)


def assert_same(one, two):
  np.testing.assert_allclose(one['logits'], two['logits'], rtol=1e-4, atol=1e-5)


def reversed_patches(images):
  """Returns images with their patches in reverse order."""
  patches = images.reshape(-1, 2, 4, 3, 4, 3)[:, ::-1, :, ::-1]
  return patches.reshape(images.shape)


@pytest.mark.parametrize('section', [
    {'position': 'none'}, {'position': 'none', 'pooling': 'average'}], ids=str)
def test_without_positions_the_order_of_patches_does_not_matter(section):
  params = randomized(**section)
  assert_same(apply(params, **section),
              apply(params, reversed_patches(IMAGES), **section))


def test_sincos_positions_follow_moco_v3():
  got = positions_lib.sincos_positions(GRID, 12)
  for r in range(2):
    for c in range(3):
      waves = [w(x / 10_000 ** (k / 2)) for x in (c, r)
               for w in (np.sin, np.cos) for k in range(3)]
      np.testing.assert_allclose(got[3 * r + c], waves, rtol=1e-6, atol=1e-7)


def test_sincos_positions_equal_learned_ones_without_cls():
  params = randomized(position='sincos')
  learned = {**params, 'positions': jnp.pad(
      positions_lib.sincos_positions(GRID, 8), [(1, 0), (0, 0)])}
  assert_same(apply(params, position='sincos'), apply(learned))
