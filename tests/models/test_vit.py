"""The Vision Transformer against equations 1 to 4 in NumPy."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from tests import jaxprs
from tests import random_models
from vit_jax import tree
from vit_jax.models import factory

RNG = np.random.default_rng(0)
TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 3, 'patch': 4}
CLASSES = 5
ABLATION = {'name': 'ablation'}


def build(image=(8, 8, 3), **section):
  """Returns the model and the shapes of its parameters: nothing compiles."""
  model = factory.build(factory.parse({**TINY, **section}), num_classes=CLASSES)
  return model, random_models.shapes_of(
      model, jax.ShapeDtypeStruct((2, *image), jnp.float32))


def randomized(shapes):
  """Returns random values for all parameters."""
  return jax.tree.map(
      lambda leaf: jnp.asarray(
          RNG.normal(size=leaf.shape) * 0.4, jnp.float32), shapes)


def random_images(*shape):
  return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def layer_norm(x, p, epsilon):
  x = x - x.mean(-1, keepdims=True)
  variance = (x ** 2).mean(-1, keepdims=True)
  return x / np.sqrt(variance + epsilon) * p['scale'] + p['bias']


def gelu(x, kind):
  if kind == 'exact':
    return x * 0.5 * (1 + scipy.special.erf(x / np.sqrt(2)))
  return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attend(query, key, value, distances=None):
  """One head: softmax(q k^T / sqrt(D_h)) v (appendix A, equations 6 and 7).

  Relative positions add q r_(i - j) to q k^T (appendix D.4).
  """
  logits = query @ key.T
  if distances is not None:
    count = len(query)
    logits += [[q @ distances[i - j + count - 1] for j in range(count)]
               for i, q in enumerate(query)]
  return scipy.special.softmax(
      logits / np.sqrt(query.shape[-1]), axis=-1) @ value


def dense(x, p):
  return x @ p['kernel'] + p['bias']


def mlp(x, p, c):
  return dense(gelu(dense(x, p['hidden']), c.gelu), p['out'])


def self_attention(x, p, c):
  values = []
  for head in range(c.num_heads):
    q, k, v = (x @ p['qkv_kernel'][:, i, head] + p['qkv_bias'][i, head]
               for i in range(3))
    distances = p['distances'][:, head] if 'distances' in p else None
    values.append(attend(q, k, v, distances))
  merged = np.concatenate(values, axis=-1)
  return merged @ p['out']['kernel'].reshape(-1, c.width) + p['out']['bias']


def block(z, layer, c, lines):
  """A layer with attention within lines of tokens."""
  # Equation 2.
  normed = layer_norm(z, layer['attention_norm'], c.layer_norm_epsilon)
  attended = np.zeros_like(z)
  for line in lines:
    attended[line] = self_attention(normed[line], layer['attention'], c)
  z = z + attended
  # Equation 3.
  normed = layer_norm(z, layer['mlp_norm'], c.layer_norm_epsilon)
  return z + mlp(normed, layer['mlp'], c)


def attention_pooling(x, p, c):
  pooled = np.zeros((1, c.width)) + p['out']['bias']
  for head in range(c.num_heads):
    q, k, v = (inputs @ p[name]['kernel'][:, head] + p[name]['bias'][head]
               for name, inputs in
               [('query', p['probe']), ('key', x), ('value', x)])
    pooled = pooled + attend(q, k, v) @ p['out']['kernel'][head]
  normed = layer_norm(pooled, p['mlp_norm'], c.layer_norm_epsilon)
  return (pooled + mlp(normed, p['mlp'], c))[0]


def positions_of(p, c):
  """Position embeddings of all tokens (appendix D.4), or 0."""
  if 'positions_rows' not in p:
    return p.get('positions', 0)
  join = np.add if c.position == 'factorized' else (
      lambda *parts: np.concatenate(parts))
  return np.stack([*p.get('positions_cls', ()), *(
      join(row, column) for row in p['positions_rows']
      for column in p['positions_columns'])])


def reference(params, image, c):
  """One image in float64, patch by patch, head by head."""
  p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
  image = np.asarray(image, np.float64)
  height, width = c.patch_shape
  patches = [image[r:r + height, s:s + width]
             for r in range(0, image.shape[0], height)
             for s in range(0, image.shape[1], width)]
  # Equation 1.
  tokens = [np.einsum('hwc,hwcd->d', patch, p['patches']['kernel'])
            + p['patches']['bias'] for patch in patches]
  if 'cls' in p:
    tokens = [p['cls'][0], *tokens]
  z = np.stack(tokens)
  is_shared = getattr(c, 'position_at', 'stem') == 'shared'
  z = embedded = z + (0 if is_shared else positions_of(p, c))
  for i in range(c.depth):
    layer = jax.tree.map(lambda leaf, i=i: leaf[i], p['encoder']['layers'])
    z = z + positions_of(p if is_shared else layer.get('row', layer), c)
    if 'row' not in layer:
      z = block(z, layer, c, [np.arange(len(z))])
      continue
    # Axial attention (appendix D.6).
    places = np.arange(len(z)).reshape(
        image.shape[0] // height, image.shape[1] // width)
    z = block(z, layer['row'], c, places)
    z = block(z, layer['column'], c, places.T)
  # Equation 4.
  if c.final_norm:
    z = layer_norm(z, p['final_norm'], c.layer_norm_epsilon)
  patches = z[int('cls' in p):]
  pooled = {
      'cls': lambda: z[0], 'average': lambda: patches.mean(0),
      'attention': lambda: attention_pooling(patches, p['pooling'], c),
  }[c.pooling]()
  if c.pool_norm:
    pooled = layer_norm(pooled, p['pool_norm'], c.layer_norm_epsilon)
  representation = pooled
  if c.representation_layer:
    representation = np.tanh(dense(pooled, p['representation']['dense']))
  return {'embedded': embedded, 'tokens': z, 'pooled': pooled,
          'representation': representation,
          'logits': dense(representation, p['head']['dense'])}


@pytest.mark.parametrize('section, image', [
    ({'representation_layer': True}, (8, 8, 3)),
    ({'patch': [2, 4]}, (4, 12, 1)),
    ({'pooling': 'attention', 'gelu': 'exact', 'layer_norm_epsilon': 0.1},
     (8, 8, 3)),
    ({'pooling': 'average', 'cls': True, 'final_norm': False,
      'pool_norm': True}, (8, 8, 3)),
    ({**ABLATION, 'position': 'relative'}, (8, 8, 3)),
    ({**ABLATION, 'position_at': 'layers', 'axial': True,
      'pooling': 'average'}, (8, 12, 3)),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        ({}, (8, 8, 3)), ({'num_heads': 1, 'depth': 1}, (8, 8, 3)),
        ({'patch': [4, 2], 'pooling': 'average'}, (12, 4, 5)),
        ({'pooling': 'attention', 'cls': True, 'position': 'none'}, (8, 8, 3)),
        ({**ABLATION, 'pooling': 'average', 'axial': True}, (8, 12, 3)),
        ({**ABLATION, 'pooling': 'attention', 'axial': True, 'patch': 2},
         (4, 6, 1)),
        ({**ABLATION, 'position': '2d'}, (8, 12, 3)),
        ({**ABLATION, 'position': 'factorized', 'pooling': 'average'},
         (8, 12, 3)),
        ({**ABLATION, 'position': '2d', 'position_at': 'layers'}, (8, 12, 3)),
        *(({**ABLATION, 'position_at': at}, (8, 12, 3))
          for at in ('layers', 'shared')),
        ({**ABLATION, 'position_at': 'shared', 'axial': True,
          'pooling': 'average'}, (8, 12, 3))])
], ids=str)
def test_forward_pass_is_equations_1_to_4(section, image):
  model, params = build(image, **section)
  params = randomized(params)
  images = random_images(2, *image)
  got = jax.jit(lambda p, x: model.apply({'params': p}, x))(params, images)
  for i in range(2):
    random_models.assert_close(
        jax.tree.map(lambda x, i=i: x[i], got),
        reference(params, images[i], model.config), atol=1e-4)


def uniform(bound):
  return lambda leaf: (np.abs(leaf).max() <= bound
                       and np.abs(leaf).max() > 0.97 * bound
                       and abs(leaf.std() / (bound / 3**0.5) - 1) < 0.03
                       and abs(leaf.mean()) < 0.03 * bound)


def normal(std):
  return lambda leaf: (abs(leaf.std() / std - 1) < 0.1
                       and abs(leaf.mean()) < 0.2 * std)


def constant(value):
  return lambda leaf: (leaf == value).all()


def test_initial_parameters_have_the_distributions_of_the_paper():
  width, mlp_dim = 96, 160
  model, _ = build(width=width, mlp_dim=mlp_dim, num_heads=4, depth=2,
                   representation_layer=True, head_bias=-10.0)
  params = jax.jit(lambda: nn.unbox(factory.init(
      model, jax.random.key(0), jnp.zeros((2, 40, 40, 3)))))()
  layer = 'encoder/layers/'
  xavier = uniform((6 / (2 * width)) ** 0.5)
  xavier_mlp = uniform((6 / (width + mlp_dim)) ** 0.5)
  expected = {
      'cls': constant(0), 'positions': normal(0.02),
      'patches/kernel': normal((4 * 4 * 3) ** -0.5),
      'patches/bias': constant(0),
      layer + 'attention/qkv_bias': constant(0),
      layer + 'attention/out/kernel': xavier,
      layer + 'attention/out/bias': constant(0),
      layer + 'mlp/hidden/kernel': xavier_mlp,
      layer + 'mlp/hidden/bias': normal(1e-6),
      layer + 'mlp/out/kernel': xavier_mlp,
      layer + 'mlp/out/bias': normal(1e-6),
      'representation/dense/kernel': normal(width ** -0.5),
      'representation/dense/bias': constant(0),
      'head/dense/kernel': constant(0), 'head/dense/bias': constant(-10)}
  for norm in (layer + 'attention_norm', layer + 'mlp_norm', 'final_norm'):
    expected |= {norm + '/scale': constant(1), norm + '/bias': constant(0)}
  flat = tree.flatten(params)
  qkv = np.asarray(flat.pop(layer + 'attention/qkv_kernel'))
  # Queries, keys and values of each layer are separate Xavier matrices.
  for i in range(3):
    for of_layer in qkv[:, :, i]:
      assert xavier(of_layer), i
  assert (qkv[0] != qkv[1]).mean() > 0.9
  assert set(flat) == set(expected)
  for name, leaf in flat.items():
    assert expected[name](np.asarray(leaf)), name


@pytest.fixture(scope='module')
def half():
  """Returns shapes of parameters, and the forward pass in bfloat16."""
  model, params = build(
      dtype='bfloat16', pooling='attention', representation_layer=True)
  images = random_images(2, 8, 8, 3)
  return params, lambda p: model.apply({'params': p}, images)


def test_bfloat16_keeps_parameters_gradients_and_logits_in_float32(half):
  params, forward = half
  grads = jax.eval_shape(jax.grad(
      lambda p: jnp.sin(forward(p)['logits'] + 1).sum()), params)
  assert {leaf.dtype for leaf in jax.tree.leaves((params, grads))} == {
      jnp.dtype('float32')}
  types = {name: str(leaf.dtype)
           for name, leaf in jax.eval_shape(forward, params).items()}
  assert types.pop('logits') == 'float32'
  assert set(types.values()) == {'bfloat16'}


def test_bfloat16_applies_to_all_products_but_the_head_softmax_and_norms(half):
  params, forward = half
  equations = [equation for equation, _ in jaxprs.equations(
      jax.make_jaxpr(forward)(params).jaxpr)]
  products = [{str(v.aval.dtype) for v in e.invars}
              for e in equations if e.primitive.name == 'dot_general']
  # Patches; per layer q, k, v, 2 of attention, out, 2 of MLP; pooling's query,
  # key, value, 2 of attention, out, 2 of MLP; representation; head.
  assert products == [{'bfloat16'}] * (1 + 8 + 8 + 1) + [{'float32'}]
  # Operations of a softmax (exp, max, sum) and a layer norm (rsqrt, sum).
  kinds = {'exp', 'rsqrt', 'reduce_max', 'reduce_sum'}
  assert {(e.primitive.name, str(e.invars[0].aval.dtype)) for e in equations
          if e.primitive.name in kinds} == {(k, 'float32') for k in kinds}
