"""Parallel layers and QK normalisation against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import models
from vit_jax import tree

TINY = {'width': 8, 'depth': 1, 'mlp_dim': 12, 'num_heads': 2, 'patch': 4}
IMAGES = jnp.asarray(
    np.random.default_rng(0).normal(size=(2, 8, 8, 3)), jnp.float32)


def build(**section):
  return models.build(models.parse({**TINY, **section}), num_classes=3)


def random_params(model):
  """Parameters that leave nothing out: no scale of 1, no bias of 0."""
  rng = np.random.default_rng(1)
  params = unboxed(models.init(model, jax.random.key(0), IMAGES))
  return jax.tree.map(
      lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32),
      params)


def norm(x, params):
  """Layer norm where there is a bias, else that of the root mean square."""
  if 'bias' in params:
    x = x - x.mean(-1, keepdims=True)
  x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
  return x * params['scale'] + params.get('bias', 0)


def attend(x, params):
  query, key, value = np.einsum('btd,dcnh->cbtnh', x, params['qkv_kernel'])
  if 'query_norm' in params:
    query, key = (norm(query, params['query_norm']),
                  norm(key, params['key_norm']))
  weights = np.exp(np.einsum('bqnh,bknh->bnqk', query, key) / np.sqrt(4))
  weights /= weights.sum(-1, keepdims=True)
  values = np.einsum('bnqk,bknh->bqnh', weights, value)
  out = params['out']
  return np.einsum('bqnh,nhd->bqd', values, out['kernel']) + out['bias']


def mlp(x, params):
  hidden = x @ params['hidden']['kernel'] + params['hidden']['bias']
  cubic = np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)
  hidden = 0.5 * hidden * (1 + np.tanh(cubic))
  return hidden @ params['out']['kernel'] + params['out']['bias']


@pytest.mark.parametrize('kind', ['layer', 'rms'])
@pytest.mark.parametrize('parallel', [True, False])
def test_layer_follows_the_formula(kind, parallel):
  # arXiv 2302.05442, section 2.1.
  model = build(
      parallel=parallel, qk_norm=True, qkv_bias=False, norm=kind,
      final_norm=False)
  params = random_params(model)
  outputs = model.apply({'params': params}, IMAGES)
  layer = jax.tree.map(lambda leaf: leaf[0], params['encoder']['layers'])
  x = np.asarray(outputs['embedded'])
  normed = norm(x, layer['attention_norm'])
  want = x + attend(normed, layer['attention'])
  if not parallel:
    normed = norm(want, layer['mlp_norm'])
  want = want + mlp(normed, layer['mlp'])
  np.testing.assert_allclose(outputs['tokens'], want, rtol=2e-4, atol=2e-4)
  assert ('mlp_norm' in layer) != parallel
  assert ('bias' in layer['attention_norm']) == (kind == 'layer')


def test_norms_of_queries_and_keys_bound_the_attention_logits():
  model = build(qk_norm=True, norm='rms', qkv_bias=False)
  params = unboxed(models.init(model, jax.random.key(0), IMAGES))
  params['encoder']['layers']['attention']['qkv_kernel'] *= 1e4
  weights = model.apply({'params': params}, IMAGES, capture=True)[
      'layers']['attention']
  # |q| = |k| = sqrt(4), so a logit is between -2 and 2.
  assert weights.min() > np.exp(-4) / 5
  assert weights.max() < 1 / (1 + 4 * np.exp(-4))


def unboxed(params):
  return tree.unflatten({
      name.removesuffix('/value'): leaf
      for name, leaf in tree.flatten(params).items()})
