"""Differential attention against the formula of its paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from vit_jax.models import factory

TINY = {'name': 'backbone', 'width': 16, 'depth': 2, 'mlp_dim': 16,
        'num_heads': 2, 'patch': 4}


def test_differential_attention_is_the_formula_of_the_paper():
  model = factory.build(factory.parse({
      **TINY, 'differential': True, 'depth': 1,
      'num_heads': 2, 'position': 'none'}), num_classes=3)
  images = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
  params = random_models.randomize(model, images, scale=0.5, seed=1)
  outputs = model.apply({'params': params}, images, capture=True)
  layer = jax.tree.map(lambda x: np.float64(x[0]), params['encoder']['layers'])
  x = np.float64(outputs['embedded'])
  normed = x - x.mean(axis=-1, keepdims=True)
  normed /= np.sqrt(np.square(normed).mean(axis=-1, keepdims=True) + 1e-6)
  normed = (normed * layer['attention_norm']['scale']
            + layer['attention_norm']['bias'])
  attention = layer['attention']
  query, key, value = (
      np.einsum('btw,wnh->bnth', normed, attention['qkv_kernel'][:, i])
      + attention['qkv_bias'][i][:, None] for i in range(3))

  def softmax(half):
    logits = query[..., half] @ key[..., half].swapaxes(2, 3) / 2  # sqrt(4).
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)

  difference = attention['difference']
  q1, k1, q2, k2 = difference['lambdas']
  factor = np.exp(q1 @ k1) - np.exp(q2 @ k2) + 0.2  # 0.8 - 0.6, layer 1.
  weights = softmax(slice(4)) - factor * softmax(slice(4, 8))
  values = weights @ value
  values /= np.sqrt(np.square(values).mean(axis=-1, keepdims=True) + 1e-5)
  values *= 0.8 * difference['norm']['scale']
  after = x + attention['out']['bias'] + np.einsum(
      'bnth,nhw->btw', values, attention['out']['kernel'])
  captured = outputs['layers']
  np.testing.assert_allclose(captured['attention'][0], weights, atol=1e-5)
  np.testing.assert_allclose(captured['after_attention'][0], after, atol=1e-5)


@pytest.mark.parametrize('settings', [
    {'rotary': {}}, {'position': 'relative_2d'}, {'num_kv_heads': 1},
    {'width': 14}], ids=str)
def test_differential_attention_excludes_other_settings(settings):
  with pytest.raises(ValueError, match='differential attention needs heads'):
    factory.parse({**TINY, 'differential': True, **settings})


def test_attention_pooling_is_not_differential():
  model = factory.build(factory.parse({
      **TINY, 'differential': True, 'parallel': True, 'pooling': 'attention',
      'pool_heads': 16}), num_classes=3)
  params = jax.eval_shape(lambda: factory.init(
      model, jax.random.key(0), jnp.ones((1, 8, 8, 3))))
  assert 'bias' in params['pooling']['mlp']['out']
  assert 'bias' not in params['encoder']['layers']['mlp']['out']
