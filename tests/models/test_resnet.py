"""ResNets and hybrids against their definition in NumPy."""

import typing

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from tests.models import test_encoder
from vit_jax import tree
from vit_jax.models import factory
from vit_jax.models import layers

RNG = np.random.default_rng(0)
BIT = {'width': 32, 'preactivation': True, 'group_norm_epsilon': 1e-5,
       'std_epsilon': 0.0, 'variance_epsilon': 1e-10}
TINY = {'post': {'width': 32, 'depths': [2, 1]},
        'pre': {**BIT, 'depths': [1, 3]},
        'root': {'width': 32, 'depths': []}}
VIT = {'width': 12, 'depth': 1, 'mlp_dim': 20, 'num_heads': 3, 'patch': 1}


def build(kind, *, image=(32, 32, 3), backbone=None, **section):
  """Returns the model and random parameters."""
  model = factory.build(factory.parse({
      'name': 'resnet', 'backbone': {**TINY[kind], **(backbone or {})},
      **section}), num_classes=3)
  return model, randomized(model, image)


def randomized(model, image=(32, 32, 3)):
  shapes = random_models.shapes_of(
      model, jax.ShapeDtypeStruct((1, *image), jnp.float32))
  return tree.map_with_name(
      lambda name, leaf: jnp.asarray(
          RNG.normal(size=leaf.shape) * 0.3 + name.endswith('scale'),
          jnp.float32), shapes)


def random_images(*shape):
  return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def pad(x, size, stride, kind, value=0.0):
  """Pads [height, width, channels]: 'pre' symmetrically, others as SAME."""
  widths = []
  for length in x.shape[:2]:
    total = max((-(-length // stride) - 1) * stride + size - length, 0)
    before, after = total // 2, total - total // 2
    if kind == 'pre':
      before = after = (size - 1) // 2
    widths.append((before, after))
  return np.pad(x, [*widths, (0, 0)], constant_values=value)


def windows(x, size, stride):
  rows = range(0, x.shape[0] - size + 1, stride)
  columns = range(0, x.shape[1] - size + 1, stride)
  return [[x[r:r + size, s:s + size] for s in columns] for r in rows]


def conv(x, kernel, c, kind, stride=1):
  mean = kernel.mean((0, 1, 2))
  std = np.sqrt(kernel.var((0, 1, 2)) + c.variance_epsilon)
  kernel = (kernel - mean) / (std + c.std_epsilon)
  size = kernel.shape[0]
  rows = windows(pad(x, size, stride, kind), size, stride)
  return np.array([[np.einsum('hwi,hwio->o', window, kernel) for window in row]
                   for row in rows])


def max_pool(x, kind):
  value = 0.0 if kind == 'pre' else -np.inf
  return np.array([[window.max((0, 1)) for window in row]
                   for row in windows(pad(x, 3, 2, kind, value), 3, 2)])


def group_norm(x, p, c):
  out = np.empty_like(x)
  size = x.shape[-1] // 32
  for i in range(0, x.shape[-1], size):
    group = x[..., i:i + size]
    out[..., i:i + size] = (group - group.mean()) / np.sqrt(
        group.var() + c.group_norm_epsilon)
  return out * p['scale'] + p['bias']


def relu(x):
  return np.maximum(x, 0)


def unit(x, p, c, kind, stride):
  norm = lambda name, x: group_norm(x, p[f'norm{name}'], c)
  project = lambda name, x, s=1: conv(x, p[f'conv{name}']['kernel'], c, kind, s)
  projected = 'conv_proj' in p
  if kind == 'pre':
    normed = relu(norm(1, x))
    shortcut = project('_proj', normed, stride) if projected else x
    y = project(2, relu(norm(2, project(1, normed))), stride)
    return shortcut + project(3, relu(norm(3, y)))
  shortcut = norm('_proj', project('_proj', x, stride)) if projected else x
  y = relu(norm(2, project(2, relu(norm(1, project(1, x))), stride)))
  return relu(shortcut + norm(3, project(3, y)))


def feature_map(p, image, c, kind):
  """One image in float64, window by window and group by group."""
  x = conv(np.asarray(image, np.float64), p['root']['kernel'], c, kind, 2)
  if kind != 'pre':
    x = relu(group_norm(x, p['root_norm'], c))
  x = max_pool(x, kind)
  for i, depth in enumerate(c.depths):
    block = p[f'block{i + 1}']
    x = unit(x, block['unit1'], c, kind, 2 if i else 1)
    for j in range(depth - 1):
      x = unit(x, jax.tree.map(lambda leaf, j=j: leaf[j], block['units']), c,
               kind, 1)
  return x


def reference(params, image, c, kind):
  p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
  x = feature_map(p['backbone'], image, c.backbone, kind)
  if kind == 'pre':
    x = relu(group_norm(x, p['final_norm'], c.backbone))
  pooled = x.mean((0, 1))
  head = p['head']['dense']
  return {'tokens': x.reshape(-1, x.shape[-1]), 'pooled': pooled,
          'representation': pooled,
          'logits': pooled @ head['kernel'] + head['bias']}


def apply(model, params, images, **kwargs):
  return jax.jit(lambda p, x: model.apply({'params': p}, x, **kwargs))(
      params, images)


# Odd sizes, where the two kinds of padding differ most.
@pytest.mark.parametrize('kind', ['post', 'pre'])
@pytest.mark.parametrize('image, backbone', [
    pytest.param((16, 16, 3), {}, marks=pytest.mark.slow),
    ((21, 13, 2), {'group_norm_epsilon': 0.3, 'std_epsilon': 0.2,
                   'variance_epsilon': 0.1})], ids=['published', 'large'])
def test_forward_pass_follows_the_definition(kind, image, backbone):
  model, params = build(kind, image=image, backbone=backbone)
  images = random_images(2, *image)
  got = apply(model, params, images)
  for i in range(2):
    random_models.assert_close(
        jax.tree.map(lambda x, i=i: x[i], got),
        reference(params, images[i], model.config, kind), rtol=2e-4, atol=2e-4)


def units(**how):
  return factory.build(factory.parse({
      'name': 'resnet', 'backbone': {**BIT, 'depths': [3]}, **how}),
      num_classes=3)


@pytest.fixture(scope='module')
def scanned():
  """Parameters of three units, two of them scanned, and their gradients."""
  params, images = randomized(units(), (8, 8, 3)), random_images(1, 8, 8, 3)
  return params, images, test_encoder.loss_and_gradients(
      units(), params, images=images)


@pytest.mark.slow  # The forward pass of scanned units is compared above.
@pytest.mark.parametrize('how', [
    {'unroll': 99}, {'remat': 'dots'}, {'remat': 'full'}], ids=str)
def test_scanned_unrolled_and_remat_are_one_computation(scanned, how):
  params, images, expected = scanned
  got = tree.flatten(test_encoder.loss_and_gradients(
      units(**how), params, images=images))
  for name, leaf in tree.flatten(expected).items():
    np.testing.assert_allclose(
        got[name], leaf, atol=1e-3 * np.abs(leaf).max(), err_msg=name)
  assert all(jnp.any(leaf != 0) for leaf in jax.tree.leaves(expected[1]))


def residuals(remat):
  """Returns the number of elements saved for the backward pass."""
  model, params = build('pre', remat=remat, backbone={'depths': [2]})
  images = random_images(1, 32, 32, 3)
  saved = jax.eval_shape(lambda p: jax.vjp(
      lambda p: model.apply({'params': p}, images)['logits'], p)[1], params)
  return tree.num_elements(saved)


def test_remat_saves_less_for_the_backward_pass():
  saved = {remat: residuals(remat) for remat in typing.get_args(layers.Remat)}
  assert saved['full'] < saved['dots'] == saved['attention'] < saved['none']


def test_initial_logits_are_the_head_bias_and_units_return_shortcuts():
  model, _ = build('post', head_bias=-3.0, backbone={'depths': [1]})
  params = jax.jit(lambda: nn.unbox(factory.init(
      model, jax.random.key(0), jnp.zeros((1, 8, 8, 3)))))()
  outputs = apply(model, params, random_images(1, 8, 8, 3))
  np.testing.assert_array_equal(outputs['logits'], np.full((1, 3), -3.0))
  scales = {name: leaf for name, leaf in tree.flatten(params).items()
            if name.endswith('scale')}
  assert len(scales) == 1 + 4
  for name, leaf in scales.items():
    assert (leaf == (0 if 'norm3' in name else 1)).all(), name


@pytest.mark.parametrize('kind', ['post', 'pre', 'root'])
@pytest.mark.parametrize('image', [(33, 31), (50, 17)])
def test_grid_is_the_shape_of_the_feature_map(kind, image):
  section = {'name': 'hybrid', 'width': 12, 'depth': 1, 'mlp_dim': 4,
             'num_heads': 2, 'patch': 1, 'backbone': TINY[kind]}
  config = factory.parse(section)
  vit = factory.build(config, num_classes=2)
  images = jax.ShapeDtypeStruct((1, *image, 3), jnp.float32)
  rows, columns = config.grid(image)
  outputs = jax.eval_shape(lambda x: vit.init_with_output(
      jax.random.key(0), x)[0], images)
  assert outputs['tokens'].shape[1] == 1 + rows * columns


@pytest.mark.parametrize('kind, patch', [
    pytest.param('post', 2, marks=pytest.mark.slow), ('root', 4)])
def test_hybrid_is_a_vit_on_the_feature_map(kind, patch):
  section = {**VIT, 'patch': patch}
  hybrid = factory.build(
      factory.parse({**section, 'name': 'hybrid', 'backbone': TINY[kind]}),
      num_classes=3)
  vit = factory.build(factory.parse(section), num_classes=3)
  params = randomized(hybrid)
  image = random_images(32, 32, 3)
  features = feature_map(
      jax.tree.map(np.asarray, params['backbone']), image,
      hybrid.config.backbone, kind)
  got = apply(hybrid, params, image[None])
  rest = {name: leaf for name, leaf in params.items() if name != 'backbone'}
  want = apply(vit, rest, jnp.asarray(features[None], jnp.float32))
  random_models.assert_close(got, want, rtol=1e-3, atol=1e-3)
