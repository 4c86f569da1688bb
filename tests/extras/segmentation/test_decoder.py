"""The decoder: its resolution, its parameters and the layers that it uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from vit_jax import tree
from vit_jax.inference import class_names
from vit_jax.models import factory

MODEL = {'width': 8, 'depth': 3, 'num_heads': 2, 'mlp_dim': 16, 'patch': 4}
IMAGES = jax.random.normal(jax.random.key(0), (2, 8, 12, 3))


def build(classes=5, **decoder):
  module = factory.build(
      factory.parse({**MODEL, 'decoder': decoder}), num_classes=classes)
  return module, jax.tree.map(jnp.asarray, random_models.randomize(
      module, IMAGES, scale=0.3, seed=1))


@pytest.mark.parametrize(('decoder', 'shape'), [
    ({}, (8, 12)), ({'cells': 1}, (2, 3)), ({'widths': [6, 4], 'cells': 1},
                                            (8, 12)),
    ({'widths': [6], 'cells': 3, 'layers': [1, 3]}, (12, 18))])
def test_logits_have_the_resolution_of_the_decoder(decoder, shape):
  module, params = build(**decoder)
  assert module.apply({'params': params}, IMAGES)['logits'].shape == (
      2, *shape, 5)


def test_a_linear_decoder_is_a_product_of_each_token():
  module, params = build(cells=2)
  outputs = module.apply({'params': params}, IMAGES)
  tokens = np.asarray(outputs['tokens'])[:, 1:].reshape(2, 2, 3, 8)
  dense = params['head']['dense']
  for row, column, i, j in ((0, 2, 1, 0), (1, 1, 0, 1)):
    np.testing.assert_allclose(
        outputs['logits'][:, 2 * row + i, 2 * column + j],
        tokens[:, row, column] @ dense['kernel'][:, i, j] + dense['bias'][i, j],
        rtol=1e-5, atol=1e-5)


def test_layers_are_those_of_the_config():
  module, params = build(cells=1, layers=[2])
  tokens = module.apply(
      {'params': params}, IMAGES, capture=True)['layers']['after_mlp'][1][:, 1:]
  centred = tokens - tokens.mean(-1, keepdims=True)
  normed = centred / jnp.sqrt(tokens.var(-1, keepdims=True) + 1e-6)
  head = params['head']
  normed = normed * head['norm_of_layer_2']['scale'] + head[
      'norm_of_layer_2']['bias']
  expected = normed @ head['dense']['kernel'][:, 0, 0] + head['dense']['bias']
  np.testing.assert_allclose(
      module.apply({'params': params}, IMAGES)['logits'].reshape(2, 6, 5),
      expected.reshape(2, 6, 5), rtol=1e-4, atol=1e-4)


def test_the_decoder_is_the_head_and_the_rest_is_the_plain_model():
  _, params = build(widths=[6])
  plain = factory.build(factory.parse(MODEL), num_classes=5)
  names = tree.flatten(random_models.shapes_of(plain, IMAGES))
  assert {n for n in tree.flatten(params) if not n.startswith('head/')} == {
      n for n in names if not n.startswith('head/')}
  assert not factory.inherit({}, {'name': 'vit', 'decoder': {}, 'width': 8}
                            ).get('decoder')


def test_classes_of_a_decoder_are_reordered_by_its_last_layer():
  model = random_models.make(
      {**random_models.TINY, 'depth': 1, 'num_classes': 3,
       'decoder': {'widths': (3,)}}, side=8, labels=('cat', 'dog', 'owl'))
  other = class_names.rename(model, ('owl', 'cat', 'dog'))
  images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
  np.testing.assert_array_equal(
      other(images)['logits'], model(images)['logits'][..., [2, 0, 1]])
