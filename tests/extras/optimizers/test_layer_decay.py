"""Layer-wise learning-rate decay against explicit multipliers."""

import jax
import numpy as np
import pytest

from vit_jax import optim
from vit_jax import tree
from vit_jax.extras.optimizers import layer_decay
from vit_jax.models import factory
from vit_jax.weights import check

DEPTH = 3
SIZES = {'width': 8, 'depth': DEPTH, 'num_heads': 2, 'mlp_dim': 16, 'patch': 4,
         'num_classes': 3}
# First components of parameters that BEiT numbers depth + 1; all others outside
# the layers are embeddings.
AFTER = {'final_norm', 'pooling', 'representation', 'head', 'relative',
         'pool_norm'}


def build(params, **section):
  config = optim.parse({
      'name': 'sgd', 'learning_rate': 0.1, 'schedule': {'name': 'constant'},
      **section})
  return optim.build(
      config, params, total_steps=10, to_steps=lambda duration: 0)


@pytest.mark.parametrize('section', [
    {'representation_layer': True, 'patch': 1,
     'backbone': {'depths': (1,), 'width': 32}},
    {'pooling': 'attention'},
    {'pooling': 'average', 'pool_norm': True, 'final_norm': False}], ids=str)
def test_each_layer_of_a_model_has_its_own_learning_rate(section):
  """BEiT's numbering: embeddings 0, block i is i + 1, the rest depth + 1."""
  shapes = check.abstract_params(factory.parse({**SIZES, **section}), (16, 16))
  rng = np.random.default_rng(0)
  params, grads = (jax.tree.map(
      lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
                   for _ in range(2))
  tx = build(params, momentum=0.0, layer_decay=0.75).tx
  got = tree.flatten(tx.update(grads, tx.init(params), params)[0])
  for name, grad in tree.flatten(grads).items():
    layer = DEPTH + 1 if name.split('/')[0] in AFTER else 0
    if name.startswith('encoder/layers/'):
      layer = np.arange(1, DEPTH + 1).reshape(-1, *[1] * (grad.ndim - 1))
    np.testing.assert_allclose(
        got[name], -0.1 * 0.75 ** (DEPTH + 1 - layer) * grad, rtol=1e-6,
        err_msg=name)


def test_adapters_have_the_learning_rate_of_their_layer():
  layers = {'encoder': {'layers': {'kernel': np.ones((2, 3, 4))}}}
  found = layer_decay.multipliers({**layers, 'lora': layers}, 0.5)
  for tree_ in (found, found['lora']):
    assert tree_['encoder']['layers']['kernel'].ravel().tolist() == [0.25, 0.5]


def test_a_resnet_has_one_rate_up_to_its_last_norm():
  names = ('backbone', 'final_norm', 'head')
  assert layer_decay.multipliers(dict.fromkeys(names, np.ones(2)), 0.5) == dict(
      zip(names, (0.5, 1, 1), strict=True))


@pytest.mark.parametrize(('frozen', 'decay', 'layers'), [
    (1, None, [0, 1, 1]), (2, 0.5, [0, 0, 0.5]), (3, None, [0, 0, 0])])
def test_first_layers_and_embeddings_may_be_frozen(frozen, decay, layers):
  params = {'encoder': {'layers': {'kernel': np.ones((3, 2))}},
            'patches': {'kernel': np.ones(2)}, 'head': {'bias': np.ones(2)},
            'relative': {'offsets': np.ones(2)}}
  tx = build(params, momentum=0.0, weight_decay=0.1, layer_decay=decay,
             frozen_layers=frozen).tx
  got = tx.update(params, tx.init(params), params)[0]
  np.testing.assert_allclose(
      got['encoder']['layers']['kernel'][:, 0], -0.11 * np.array(layers),
      rtol=1e-6)
  assert not np.any(got['patches']['kernel'])
  assert not np.any(got['relative']['offsets'])
  np.testing.assert_allclose(got['head']['bias'], -0.1, rtol=1e-6)


def test_frozen_layers_are_no_part_of_the_clipped_norm():
  params = {'encoder': {'layers': {'kernel': np.ones((3, 2))}},
            'head': {'bias': np.ones(2)}}
  tx = build(params, momentum=0.0, frozen_layers=3, clip_norm=1.0).tx
  got = tx.update(params, tx.init(params), params)[0]
  np.testing.assert_allclose(got['head']['bias'], -0.1 / 2**0.5, rtol=1e-6)
