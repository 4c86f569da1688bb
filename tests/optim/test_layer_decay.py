"""Layer-wise learning-rate decay against explicit multipliers."""

import flax.linen as nn
import jax
import numpy as np
import pytest

from vit_jax import models
from vit_jax import optim
from vit_jax import tree
from vit_jax.optim import layer_decay

DEPTH = 3
SHAPES = {
    'patches': {'kernel': (4, 2)},
    'positions': (5, 2),
    'positions_cls': (1, 2),
    'cls': (1, 2),
    'registers': (2, 2),
    'backbone': {'stem': {'kernel': (3, 3)}},
    'encoder': {'layers': {
        'mlp': {'kernel': (DEPTH, 2, 4), 'bias': (DEPTH, 4)},
        'attention_norm': {'scale': (DEPTH, 2)}}},
    'final_norm': {'scale': (2,)},
    'pooling': {'probe': (1, 2)},
    'representation': {'kernel': (2, 2)},
    'head': {'kernel': (2, 3), 'bias': (3,)},
}
EMBEDDINGS = {'patches/kernel', 'positions', 'positions_cls', 'cls',
              'registers', 'backbone/stem/kernel'}


def random(seed):
  rng = np.random.default_rng(seed)
  return jax.tree.map(
      lambda shape: rng.normal(size=shape).astype(np.float32), SHAPES,
      is_leaf=lambda node: isinstance(node, tuple))


PARAMS, GRADS = random(0), random(1)


def build(params=PARAMS, **section):
  config = optim.parse({
      'name': 'sgd', 'learning_rate': 0.1, 'schedule': {'name': 'constant'},
      **section})
  return optim.build(
      config, params, total_steps=10, to_steps=lambda duration: 0)


def update(**section):
  """Returns the updates of one step of plain SGD, by name."""
  tx = build(momentum=0.0, **section).tx
  updates, _ = jax.jit(tx.update)(GRADS, tx.init(PARAMS), PARAMS)
  return {name: np.asarray(u) for name, u in tree.flatten(updates).items()}


def unrolled(leaves):
  """Returns each layer's slice under a separate name."""
  result = {}
  for name, leaf in leaves.items():
    if name.startswith('encoder/layers/'):
      for i in range(DEPTH):
        result[f'block{i}/{name}'] = leaf[i]
    else:
      result[name] = leaf
  return result


def expected_factor(name, decay):
  """BEiT's numbering: embeddings 0, block i is i + 1, the rest depth + 1."""
  if name in EMBEDDINGS:
    layer_id = 0
  elif name.startswith('block'):
    layer_id = int(name[len('block')]) + 1
  else:
    layer_id = DEPTH + 1
  return decay ** (DEPTH + 1 - layer_id)


def test_each_layer_has_its_own_learning_rate():
  got = unrolled(update(layer_decay=0.75))
  plain = unrolled(tree.flatten(GRADS))
  assert len(got) == len(plain) == 11 + 3 * DEPTH
  for name, grad in plain.items():
    np.testing.assert_allclose(
        got[name], -0.1 * expected_factor(name, 0.75) * grad, rtol=1e-6,
        err_msg=name)


def test_every_parameter_of_a_model_has_its_multiplier():
  model = models.build(models.parse({
      'width': 8, 'depth': 4, 'num_heads': 2, 'mlp_dim': 16, 'patch': 4,
      'representation_layer': True}), num_classes=3)
  params = nn.unbox(jax.eval_shape(lambda: models.init(
      model, jax.random.key(0),
      jax.ShapeDtypeStruct((1, 8, 8, 3), 'float32'))))
  factors = tree.flatten(layer_decay.multipliers(params, 0.5))
  for name, leaf in tree.flatten(params).items():
    assert np.broadcast_shapes(factors[name].shape, leaf.shape) == leaf.shape
  qkv = factors['encoder/layers/attention/qkv_kernel']
  assert qkv.ravel().tolist() == [1 / 16, 1 / 8, 1 / 4, 1 / 2]
  ends = {name: float(f) for name, f in factors.items() if f.shape == ()}
  assert ends['patches/kernel'] == ends['cls'] == ends['positions'] == 1 / 32
  assert ends['head/dense/kernel'] == ends['final_norm/scale'] == 1
  assert ends['representation/dense/kernel'] == 1
  assert set(ends.values()) == {1 / 32, 1}


def test_model_without_layers_is_an_error():
  params = {'stem': {'kernel': np.zeros((3, 3))}, 'head': {'bias': np.ones(2)}}
  with pytest.raises(ValueError, match='no Transformer layers.*head, stem'):
    build(params, layer_decay=0.75)


@pytest.mark.parametrize('value', [0.0, -1.0, 1.5])
def test_decay_outside_0_and_1_is_an_error(value):
  with pytest.raises(ValueError, match='above 0 and at most 1'):
    build(layer_decay=value)
