"""Backbones against the formulas of their papers in NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from tests import random_models
from tests.models import test_vit
from vit_jax.extras.zoo import backbone_config
from vit_jax.models import factory

ROTARY = {'width': 24}  # Heads of 8 channels.


def layer_norm(x, p, epsilon):
  """Layer norm, or RMS norm of parameters without a bias."""
  if 'bias' in p:
    x = x - x.mean(-1, keepdims=True)
  variance = (x ** 2).mean(-1, keepdims=True)
  return x / np.sqrt(variance + epsilon) * p['scale'] + p.get('bias', 0)


def gelu(x, kind):
  return x / (1 + np.exp(-1.702 * x)) if kind == 'quick' else test_vit.gelu(
      x, kind)


def attend(query, key, value, bias=0):
  """One head: softmax(q k^T / sqrt(D_h)) v (appendix A, equations 6 and 7)."""
  logits = query @ key.T / np.sqrt(query.shape[-1]) + bias
  return scipy.special.softmax(logits, axis=-1) @ value


def offset_bias(p, c, grid, head):
  """Biases of a head, pair by pair (arXiv 2106.08254, 2111.09883)."""
  places = [None] * c.num_prefix + list(np.ndindex(grid))
  bias = np.zeros((len(places), len(places)))
  for i, one in enumerate(places):
    for j, other in enumerate(places):
      if 'hidden' in p:
        if one and other:
          at = np.subtract(one, other)
          at = np.sign(at) * np.log(1 + np.abs(at))
          hidden = np.maximum(dense(at, p['hidden']), 0)
          bias[i, j] = dense(hidden, p['out'])[head]
      elif one and other:
        down, right = np.subtract(one, other) + grid - np.array([1, 1])
        bias[i, j] = p['offsets'][down * (2 * grid[1] - 1) + right, head]
      else:  # The last three are of class tokens.
        bias[i, j] = p['offsets'][-1 if one == other else -2 if one else -3,
                                  head]
  return bias


def dense(x, p):
  return x @ p['kernel'] + p.get('bias', 0)


def mlp(x, p, c):
  hidden = dense(x, p['hidden'])
  if 'gate' in p:  # SwiGLU: arXiv 2002.05202, equation 6.
    gate = dense(x, p['gate'])
    hidden = gate / (1 + np.exp(-gate)) * hidden
  else:
    hidden = gelu(hidden, c.gelu)
  if 'inner_norm' in p:
    hidden = layer_norm(hidden, p['inner_norm'], c.layer_norm_epsilon)
  return dense(hidden, p['out'])


def rotated(x, c, grid, learned=None):
  """Multiplies pairs of channels of patches by e^(i angle) (2104.09864)."""
  r, x = c.rotary, x.copy()
  count = c.head_dim // 4
  for n, (row, column) in enumerate(np.ndindex(grid)):
    at = [2 * np.pi * (2 * (index + 0.5) / size - 1)
          if r.coordinates == 'normalized' else
          (index + r.offset) * (r.reference / size if r.reference else 1)
          for index, size in zip((row, column), grid)]
    at = at[::-1] if r.x_first else at
    for pair in range(2 * count):
      angle = (at[pair // count] * r.base ** -(pair % count / count)
               if learned is None else at @ learned[:, pair])
      i, j = ((pair, pair + 2 * count) if r.halves else
              (2 * pair, 2 * pair + 1))
      token = len(x) - grid[0] * grid[1] + n
      turned = (x[token, i] + 1j * x[token, j]) * np.exp(1j * angle)
      x[token, i], x[token, j] = turned.real, turned.imag
  return x


def self_attention(x, p, c, grid, shared):
  values = []
  if c.num_kv_heads:  # Grouped queries: a group has equal keys and values.
    p = {**p, **{f'qkv_{end}': np.concatenate([p[f'q_{end}'], np.repeat(
        p[f'kv_{end}'], c.num_heads // c.num_kv_heads, axis=-2)], axis=-3)
                 for end in ('kernel', 'bias')}}
  for head in range(c.num_heads):
    bias = p.get('qkv_bias', np.zeros((3, c.num_heads, c.head_dim)))
    if 'qv_bias' in p:
      bias = [p['qv_bias'][0], np.zeros_like(p['qv_bias'][0]), p['qv_bias'][1]]
    q, k, v = (x @ p['qkv_kernel'][:, i, head] + bias[i][head]
               for i in range(3))
    if c.qk_norm:
      q, k = (layer_norm(x, p[name], c.layer_norm_epsilon) for x, name in
              [(q, 'query_norm'), (k, 'key_norm')])
    if c.rotary:
      learned = p['frequencies'][:, head] if 'frequencies' in p else None
      q, k = (rotated(x, c, grid, learned) for x in (q, k))
    relative = p.get('relative', shared)
    bias = 0 if relative is None else offset_bias(relative, c, grid, head)
    values.append(attend(q, k, v, bias))
  merged = np.concatenate(values, axis=-1)
  if 'inner_norm' in p:
    merged = layer_norm(merged, p['inner_norm'], c.layer_norm_epsilon)
  return merged @ p['out']['kernel'].reshape(-1, c.width) + (
      p['out'].get('bias', 0))


def block(z, layer, c, grid, shared):
  """A layer: equations 2 and 3, with the settings of other papers."""
  if c.post_norm:  # arXiv 2111.09883, figure 1.
    attended = self_attention(z, layer['attention'], c, grid, shared)
    z = z + layer_norm(attended, layer['attention_norm'], c.layer_norm_epsilon)
    return z + layer_norm(
        mlp(z, layer['mlp'], c), layer['mlp_norm'], c.layer_norm_epsilon)
  # Equation 2.
  normed = layer_norm(z, layer['attention_norm'], c.layer_norm_epsilon)
  attended = self_attention(normed, layer['attention'], c, grid, shared)
  z = z + attended * layer.get('attention_scale', 1)
  # Equation 3; parallel layers: arXiv 2302.05442, section 2.1.
  if not c.parallel:
    normed = layer_norm(z, layer['mlp_norm'], c.layer_norm_epsilon)
  return z + mlp(normed, layer['mlp'], c) * layer.get('mlp_scale', 1)


def reference(params, image, c):
  """One image in float64, patch by patch, head by head."""
  c = backbone_config.general(c)
  p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
  image = np.asarray(image, np.float64)
  height, width = c.patch_shape
  patches = [image[r:r + height, s:s + width]
             for r in range(0, image.shape[0], height)
             for s in range(0, image.shape[1], width)]
  # Equation 1.
  tokens = [np.einsum('hwc,hwcd->d', patch, p['patches']['kernel'])
            + p['patches'].get('bias', 0) for patch in patches]
  if c.stem_norm == 'patches':
    tokens = [layer_norm(x, p['patch_norm'], c.layer_norm_epsilon)
              for x in tokens]
  has_cls = c.pooling == 'cls' or bool(c.cls)
  places = list(p.get('positions', np.zeros((len(tokens) + has_cls, c.width))))
  start = []
  if has_cls:
    start = [p['cls'][0] + (places.pop(0) if c.position_cls else 0)]
  start += list(p.get('registers', []))
  z = embedded = np.stack(
      start + [x + place for x, place in zip(tokens, places, strict=True)])
  if c.stem_norm == 'tokens':
    z = embedded = layer_norm(z, p['stem_norm'], c.layer_norm_epsilon)
  grid = image.shape[0] // height, image.shape[1] // width
  for i in range(c.depth):
    layer = jax.tree.map(lambda leaf, i=i: leaf[i], p['encoder']['layers'])
    z = block(z, layer, c, grid, p.get('relative'))
  # Equation 4.
  if c.final_norm:
    z = layer_norm(z, p['final_norm'], c.layer_norm_epsilon)
  inputs = z if c.pool_prefix else z[len(start):]
  pooled = {
      'cls': lambda: z[0], 'average': lambda: inputs.mean(0),
      'attention': lambda: test_vit.attention_pooling(
          inputs, p['pooling'], dataclasses.replace(
              c, num_heads=c.pool_heads or c.num_heads)),
  }[c.pooling]()
  if c.pool_norm:
    pooled = layer_norm(pooled, p['pool_norm'], c.layer_norm_epsilon)
  representation = pooled
  if c.representation_layer:
    representation = np.tanh(dense(pooled, p['representation']['dense']))
  head = p['head']['dense']
  return {'embedded': embedded, 'tokens': z, 'pooled': pooled,
          'representation': representation,
          'logits': representation @ head['kernel'] + head['bias']}


@pytest.mark.parametrize('section, image', [
    ({'registers': 2, 'position_cls': False, 'layer_scale': 0.1}, (8, 8, 3)),
    ({'parallel': True, 'qk_norm': True, 'qkv_bias': False, 'norm': 'rms'},
     (8, 8, 3)),
    ({'position': 'relative_2d', 'pooling': 'average', 'post_norm': True,
      'position_at': 'shared'}, (12, 8, 3)),
    ({'mlp': 'swiglu', 'proj_bias': False, 'stem_norm': 'patches',
      'pooling': 'attention', 'pool_prefix': True, 'cls': True,
      'pool_heads': 4, 'pool_mlp_dim': 8}, (8, 8, 3)),
    ({'rotary': {'coordinates': 'normalized', 'base': 100, 'halves': True},
      **ROTARY, 'position': 'none', 'pooling': 'average'}, (8, 12, 3)),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        ({'qkv_bias': False, 'final_norm': False}, (8, 8, 3)),
        ({'pooling': 'average', 'registers': 2, 'final_norm': False,
          'pool_norm': True}, (8, 8, 3)),
        ({'pooling': 'average', 'cls': True, 'layer_scale': 1.0}, (8, 8, 3)),
        ({'pooling': 'attention', 'cls': True, 'registers': 1}, (8, 8, 3)),
        ({'position': 'relative_2d', 'registers': 1}, (8, 12, 3)),
        ({'position': 'relative_mlp', 'position_mlp_dim': 6}, (8, 12, 3)),
        ({'gelu': 'quick', 'stem_norm': 'tokens'}, (8, 8, 3)),
        ({'mlp': 'swiglu', 'inner_norm': 'both', 'key_bias': False,
          'pooling': 'average', 'cls': True, 'pool_prefix': True}, (8, 8, 3)),
        ({'rotary': {'reference': 4}, 'inner_norm': 'mlp', **ROTARY},
         (8, 12, 3)),
        ({'rotary': {'x_first': True, 'offset': 1.0, 'base': 100}, **ROTARY,
          'registers': 2}, (12, 8, 3)),
        ({'rotary': {'learned': True, 'x_first': True}, **ROTARY}, (8, 12, 3)),
        ({'pooling': 'average', 'pool_norm': True, 'norm': 'rms'}, (8, 8, 3)),
        ({'num_heads': 6, 'num_kv_heads': 2, 'qk_norm': True}, (8, 8, 3))])
], ids=str)
def test_forward_pass_is_the_formulas_of_the_papers(section, image):
  model, params = test_vit.build(image, name='backbone', **section)
  params = test_vit.randomized(params)
  images = test_vit.random_images(2, *image)
  got = jax.jit(lambda p, x: model.apply({'params': p}, x))(params, images)
  for i in range(2):
    random_models.assert_close(
        jax.tree.map(lambda x, i=i: x[i], got),
        reference(params, images[i], model.config), atol=1e-4)


DIFFERENTIAL = {
    'name': 'backbone', 'width': 16, 'depth': 2, 'mlp_dim': 16, 'num_heads': 2,
    'patch': 4, 'differential': True}


def test_differential_attention_is_the_formula_of_the_paper():
  model = factory.build(factory.parse({
      **DIFFERENTIAL, 'depth': 1, 'position': 'none'}), num_classes=3)
  images = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
  params = random_models.randomize(model, images, scale=0.5, seed=1)
  outputs = model.apply({'params': params}, images, capture=True)
  layer = jax.tree.map(lambda x: np.float64(x[0]), params['encoder']['layers'])
  x = np.float64(outputs['embedded'])
  normed = layer_norm(x, layer['attention_norm'], 1e-6)
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


def test_attention_pooling_is_not_differential():
  model = factory.build(factory.parse({
      **DIFFERENTIAL, 'parallel': True, 'pooling': 'attention',
      'pool_heads': 16}), num_classes=3)
  params = jax.eval_shape(lambda: factory.init(
      model, jax.random.key(0), jnp.ones((1, 8, 8, 3))))
  assert 'bias' in params['pooling']['mlp']['out']
  assert 'bias' not in params['encoder']['layers']['mlp']['out']
