"""Layer-wise learning-rate decay against explicit multipliers."""

import jax
import numpy as np
import pytest

from vit_jax import models
from vit_jax import optim
from vit_jax import tree
from vit_jax.optim import layer_decay
from vit_jax.weights import load

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


def test_each_layer_has_its_own_learning_rate():
  """BEiT's numbering: embeddings 0, block i is i + 1, the rest depth + 1."""
  tx = build(momentum=0.0, layer_decay=0.75).tx
  got = tree.flatten(tx.update(GRADS, tx.init(PARAMS), PARAMS)[0])
  grads = tree.flatten(GRADS)
  assert got.keys() == grads.keys()
  for name, grad in grads.items():
    layer = 0 if name in EMBEDDINGS else DEPTH + 1
    if name.startswith('encoder/layers/'):
      layer = np.arange(1, DEPTH + 1).reshape(-1, *[1] * (grad.ndim - 1))
    np.testing.assert_allclose(
        got[name], -0.1 * 0.75 ** (DEPTH + 1 - layer) * grad, rtol=1e-6,
        err_msg=name)


def test_every_parameter_of_a_model_has_its_multiplier():
  params = load.abstract_params(models.parse({
      'width': 8, 'depth': 4, 'num_heads': 2, 'mlp_dim': 16, 'patch': 4,
      'representation_layer': True, 'num_classes': 3}), (8, 8))
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
