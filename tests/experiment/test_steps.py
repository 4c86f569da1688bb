"""Drawn masks and views depend on the seed and the step alone."""

import functools

import jax
import numpy as np
import pytest

from tests import leaves
from tests import random_models
from tests import toy
from vit_jax import registry

OBJECTIVES = {
    'mae': {'name': 'mae', 'decoder_width': 8, 'decoder_depth': 1,
            'decoder_heads': 2},
    'lejepa': {'name': 'lejepa', 'hidden': 8, 'embedding': 4, 'directions': 16,
               'views': {'num_local': 2, 'local_size': 4}}}


@functools.cache  # Each step is compiled once.
def build(objective, *, devices=1, accumulation=1):
  return toy.build(
      devices=devices, batch_size=16, objective=OBJECTIVES[objective],
      accumulation=accumulation,
      # Adam would amplify rounding errors.
      optimizer={'name': 'sgd', 'learning_rate': 0.3},
      model={'pooling': 'average', 'patch': 2, 'depth': 2})


@pytest.mark.slow  # Compiles training steps.
@pytest.mark.parametrize('objective,devices,accumulation', [
    ('lejepa', 4, 2),
    pytest.param('mae', 2, 4, marks=pytest.mark.large)])
def test_devices_and_microbatches_do_not_change_the_steps(
    objective, devices, accumulation):
  assert_same_steps(
      build(objective),
      build(objective, devices=devices, accumulation=accumulation))


def assert_same_steps(one, many):
  start = jax.device_get(one.init_state())
  state, losses = toy.take_steps(
      one, jax.device_put(start, one.shardings), last=2)
  assert losses[0] != losses[1]
  other, found = toy.take_steps(
      many, jax.device_put(start, many.shardings), last=2)
  np.testing.assert_allclose(found, losses, rtol=1e-5)
  random_models.assert_close(*jax.device_get((other.params, state.params)))


@pytest.mark.skipif(not leaves.has(registry.LORA), reason='It adapts.')
@pytest.mark.slow
def test_adapters_train_in_microbatches_of_a_compared_batch():
  built = toy.build(
      objective=OBJECTIVES['lejepa'], accumulation=2, lora={'rank': 2},
      optimizer={'frozen': ['(?!lora/).*']})
  state, loss = jax.eval_shape(
      built.train_step, built.abstract_state, built.abstract_batch)
  assert loss.shape == ()
  assert jax.tree.structure(state) == jax.tree.structure(built.abstract_state)


def test_a_run_of_no_step_is_an_error():
  with pytest.raises(ValueError, match=(
      "total is {'epochs': 1}, which is no step of batch_size 3000 for 1,437")):
    toy.build(total={'epochs': 1}, batch_size=3000)
