"""Schedule-free AdamW against that of Optax."""

import jax
import optax
import optax.contrib
import pytest

from tests import random_models
from tests.optim import test_optimizers as common


@pytest.mark.parametrize('frozen', [(), ('body/.*',)])
def test_the_average_of_schedule_free_is_that_of_optax(frozen):
  optimizer = common.build(
      'schedule_free', schedule={'name': 'constant', 'warmup': {'steps': 3}},
      beta2=0.8, weight_decay=0.1, weight_decay_rules=[['.*', 1.0]],
      frozen=frozen)
  reference = optax.contrib.schedule_free_adamw(
      0.1, warmup_steps=3, b2=0.8, weight_decay=0.1)
  points, averages = [], []
  for tx, average in ((optimizer.tx, optimizer.average),
                      (reference, optax.contrib.schedule_free_eval_params)):
    params, state = common.PARAMS, tx.init(common.PARAMS)
    for grad in common.GRADS:
      updates, state = jax.jit(tx.update)(grad, state, params)
      params = optax.apply_updates(params, updates)
    points.append(params['head'])
    averages.append(average(state, params))
  random_models.assert_close(*points, rtol=1e-5)
  random_models.assert_close(*(x['head'] for x in averages), rtol=1e-5)
  assert (averages[0]['head']['kernel'] != points[0]['kernel']).all()
  if frozen:
    random_models.assert_close(
        averages[0]['body'], common.PARAMS['body'], rtol=0)
