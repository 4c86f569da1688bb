"""Drawn masks and views depend on the seed and the step alone."""

import jax
import numpy as np
import pytest

from tests import random_models
from tests import toy

MAE = {'name': 'mae', 'decoder_width': 8, 'decoder_depth': 1,
       'decoder_heads': 2}


def build(objective, *, devices=1, accumulation=1):
  return toy.build(
      devices=devices, batch_size=16, objective=objective,
      accumulation=accumulation,
      # Adam would amplify rounding errors.
      optimizer={'name': 'sgd', 'learning_rate': 0.3},
      model={'pooling': 'average', 'patch': 2, 'depth': 2})


@pytest.mark.large  # Compiles training steps.
def test_devices_and_microbatches_do_not_change_the_steps(
    objective=MAE, devices=2, accumulation=4):
  assert_same_steps(build(objective), build(
      objective, devices=devices, accumulation=accumulation))


def assert_same_steps(one, many):
  start = jax.device_get(one.init_state())
  state, losses = toy.take_steps(
      one, jax.device_put(start, one.shardings), last=2)
  assert losses[0] != losses[1]
  other, found = toy.take_steps(
      many, jax.device_put(start, many.shardings), last=2)
  np.testing.assert_allclose(found, losses, rtol=1e-5)
  random_models.assert_close(*jax.device_get((other.params, state.params)))
