"""Kinds of position embeddings, in the stem and in layers."""

import functools

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
PLACES = 6
IMAGES = jnp.asarray(RNG.normal(size=(2, 8, 12, 3)), jnp.float32)


def build(**section):
  return factory.build(factory.parse({**TINY, **section}), num_classes=3)


def randomized(**section):
  return tree.flatten(jax.tree.map(jnp.asarray, random_models.randomize(
      build(**section), IMAGES, scale=0.4, seed=0)))


@functools.cache
def jitted(*, capture, **section):
  model = build(**section)
  return jax.jit(lambda p, x: model.apply({'params': p}, x, capture=capture))


def apply(params, images=IMAGES, *, capture=False, **section):
  return jitted(capture=capture, **section)(tree.unflatten(params), images)


def assert_same(one, two):
  np.testing.assert_allclose(
      one['logits'], two['logits'], rtol=1e-4, atol=1e-5)


def reversed_patches(images):
  """Returns images with their patches in reverse order."""
  patches = images.reshape(-1, 2, 4, 3, 4, 3)[:, ::-1, :, ::-1]
  return patches.reshape(images.shape)


def without(params, *names):
  return {name: leaf for name, leaf in params.items() if name not in names}


@pytest.mark.parametrize('section', [
    {'position': 'none'}, {'position': 'none', 'pooling': 'average'}], ids=str)
def test_without_positions_the_order_of_patches_does_not_matter(section):
  params = randomized(**section)
  assert_same(apply(params, **section),
              apply(params, reversed_patches(IMAGES), **section))


def test_2d_positions_concatenate_row_and_column():
  params = randomized(position='2d')
  places = [np.concatenate([params['positions_rows'][r],
                            params['positions_columns'][c]])
            for r in range(2) for c in range(3)]
  learned = {
      **without(params, 'positions_rows', 'positions_columns', 'positions_cls'),
      'positions': jnp.stack([params['positions_cls'][0], *places])}
  assert_same(apply(params, position='2d'), apply(learned))


def test_factorized_positions_add_row_and_column():
  section = {'position': 'factorized', 'pooling': 'average'}
  params = randomized(**section)
  places = [params['positions_rows'][r] + params['positions_columns'][c]
            for r in range(2) for c in range(3)]
  learned = {**without(params, 'positions_rows', 'positions_columns'),
             'positions': jnp.stack(places)}
  assert_same(apply(params, **section), apply(learned, pooling='average'))


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


@pytest.mark.parametrize('position', ['learned', '2d'])
def test_shared_positions_equal_identical_positions_per_layer(position):
  own = {'position': position, 'position_at': 'layers'}
  shared = {'position': position, 'position_at': 'shared'}
  params = randomized(**shared)
  stacked = {
      (f'encoder/layers/{name}' if 'positions' in name else name):
      (jnp.stack([leaf, leaf]) if 'positions' in name else leaf)
      for name, leaf in params.items()}
  assert_same(apply(params, **shared), apply(stacked, **own))
  # And each layer has its own.
  first = {name: leaf.at[1].set(0) if 'positions' in name else leaf
           for name, leaf in stacked.items()}
  got = apply(first, **own)['logits']
  assert np.abs(got - apply(stacked, **own)['logits']).max() > 1e-3


def test_shared_positions_are_added_before_each_layer():
  section = {'position_at': 'shared', 'mlp_dim': 4}
  params = randomized(**section)
  # If all branches return 0, each layer adds the positions and nothing else.
  params = {name: jnp.zeros_like(leaf) if '/out/' in name else leaf
            for name, leaf in params.items()}
  outputs = apply(params, capture=True, **section)
  last = outputs['layers']['after_mlp'][-1]
  np.testing.assert_allclose(
      last - outputs['embedded'],
      np.broadcast_to(2 * params['positions'], last.shape), rtol=1e-4,
      atol=1e-5)


def test_axial_layers_add_positions_once():
  section = {'axial': True, 'pooling': 'average'}
  params = randomized(position_at='layers', **section)
  assert params['encoder/layers/row/positions'].shape == (2, PLACES, 8)
  assert not any('column/positions' in name for name in params)
  params = {name: jnp.broadcast_to(leaf[:1], leaf.shape)
            if 'positions' in name else leaf for name, leaf in params.items()}
  shared = {**without(params, 'encoder/layers/row/positions'),
            'positions': params['encoder/layers/row/positions'][0]}
  assert_same(apply(params, position_at='layers', **section),
              apply(shared, position_at='shared', **section))
