"""Muon against that of Optax, matrix by matrix."""

import numpy as np
import optax
import optax.contrib
import pytest

from tests.optim import test_optimizers as common
from vit_jax import tree
from vit_jax.extras.optimizers import muon


@pytest.mark.slow  # Compiles eight optimizers; tests/optim has quick ones.
def test_muon_updates_each_matrix_of_a_stack_and_adam_the_rest():
  shapes = {'encoder': {'layers': {
      'qkv_kernel': (2, 6, 3, 2, 4),  # layers, width, q k v, heads, head_dim
      'kv_kernel': (2, 6, 2, 1, 4),
      'out': {'kernel': (2, 2, 4, 6)},  # layers, heads, head_dim, width
      'hidden': {'kernel': (2, 6, 9)}}},
      'backbone': {'block1': {
          'unit1': {'conv2': {'kernel': (3, 3, 2, 4)}},  # sides, in, out
          'units': {'conv2': {'kernel': (2, 3, 3, 2, 4)}}}},
      'decoder': {'encoder': {'layers': {'hidden': {'kernel': (2, 4, 5)}}}},
      'head': {'kernel': (6, 3)}}
  as_matrices = {
      'encoder/layers/qkv_kernel': lambda a: np.moveaxis(
          a.reshape(2, 6, 3, 8), 2, 1).reshape(6, 6, 8),
      'encoder/layers/kv_kernel': lambda a: np.moveaxis(
          a.reshape(2, 6, 2, 4), 2, 1).reshape(4, 6, 4),
      'encoder/layers/out/kernel': lambda a: a.reshape(2, 8, 6),
      'encoder/layers/hidden/kernel': lambda a: a,
      'backbone/block1/unit1/conv2/kernel': lambda a: a.reshape(1, 18, 4),
      'backbone/block1/units/conv2/kernel': lambda a: a.reshape(2, 18, 4),
      'decoder/encoder/layers/hidden/kernel': lambda a: a}
  params = common.random(np.random.default_rng(0), shapes)
  grads = [common.random(np.random.default_rng(i), shapes) for i in range(1, 4)]
  optimizer = common.build('muon', params, matrices='(decoder/)?' + muon.LAYERS)
  got = common.run(optimizer, params, grads)

  def alone(values, tx):
    start, *rest = (values(tree.flatten(x)) for x in (params, *grads))
    return common.run(optimizer._replace(tx=tx), start, rest)

  for name, matrices in as_matrices.items():
    want = alone(
        lambda leaves: dict(enumerate(matrices(leaves[name]))),  # noqa: B023
        optax.contrib.muon(optimizer.schedule, consistent_rms=0.2))
    np.testing.assert_allclose(
        matrices(got[name]), [*want.values()], rtol=1e-6, atol=1e-6,
        err_msg=name)
  # Optax's Muon updates the rest with Nesterov momentum.
  head = alone(lambda leaves: {'it': leaves['head/kernel']},
               optax.adam(optimizer.schedule))['it']
  np.testing.assert_allclose(got['head/kernel'], head, rtol=1e-6)


def test_the_default_matrices_may_match_nothing():
  common.test_default_rules_may_match_nothing('muon', matrices=muon.LAYERS)
