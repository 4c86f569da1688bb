"""Counters continue after a restart, and determine when patience ends."""

import dataclasses
import json
import math

import jax
import pytest

from vit_jax import schema
from vit_jax.run import counters as counters_lib

NAN = math.nan


def test_counters_survive_a_checkpoint():
  counters = counters_lib.Counters(
      step=5, images=3, flops=2**70 + 1, device_secs_by_kind={'cpu': 1.5},
      best=0.5, best_step=4, unimproved=2, unimproved_steps=6)
  progress = json.loads(json.dumps(dataclasses.asdict(counters)))
  assert counters_lib.Counters.restore(progress, step=5) == counters


@pytest.mark.parametrize(('mode', 'value', 'best', 'better'), [
    ('max', 0.9, 0.8, True), ('max', 0.8, 0.8, False), ('max', 0.7, 0.8, False),
    ('min', 0.9, 0.8, False), ('min', 0.8, 0.8, False), ('min', 0.7, 0.8, True),
    ('min', 5.0, None, True), ('max', NAN, None, False),
    ('max', NAN, 0.1, False), ('min', NAN, 0.1, False),
    ('max', math.inf, 0.1, False), ('min', -math.inf, 0.1, False),
])
def test_only_finite_improvements_are_better(mode, value, best, better):
  counters = counters_lib.Counters(step=4, best=best)
  counters.add_metric(value, mode=mode)
  assert (counters.best_step == 4) is better


def ends_at(values, patience, *, every=4, mode='min'):
  """Returns the step at which patience ends, or None."""
  counters = counters_lib.Counters()
  for value in values:
    counters.step += every
    counters.add_metric(value, mode=mode)
    if counters.is_out_of_patience(patience, batch_size=1, num_examples=1):
      return counters.step
  return None


@pytest.mark.parametrize(('values', 'patience', 'step'), [
    ([3, 2, 1], 1, None),
    ([3, 4], 1, 8),
    ([3, 4], 2, None),
    ([3, 4, 2, 4, 4], 2, 20),  # The best restarts the count.
    ([3, 3, 3], 2, 12),  # An equal value is not an improvement.
    ([3, NAN, NAN], 2, 12),
    ([NAN, NAN, 1, 2], 3, None),
    ([NAN, NAN], 2, 8),  # Never finite.
    ([3, 4, 5], schema.Duration(steps=7.9), 12),
    ([3, 4, 5], schema.Duration(steps=8), 12),
    ([3, 4, 5], schema.Duration(steps=8.1), None),
    ([NAN, NAN], schema.Duration(steps=8), 8),
    ([1, 2, 3, 4, 5], None, None),
])
def test_patience_counts_evaluations_or_steps_since_the_best(
    values, patience, step):
  assert ends_at(values, patience) == step


def test_the_step_of_each_evaluator_is_that_of_its_last_metrics():
  counters = counters_lib.Counters(step=2)
  counters.add_evals({'x/rank': 1.0, 'y/loss': 1.0})
  later = dataclasses.replace(counters, step=4)
  later.add_evals({'y/loss': 0.5})
  assert counters.eval_steps == {'x': 2, 'y': 2}
  assert later.eval_steps == {'x': 2, 'y': 4}


def test_device_time_is_summed_by_kind_over_restarts():
  counters = counters_lib.Counters(
      secs=2.0, device_secs_by_kind={'TPU v3': 10, 'cpu': 5})
  later = dataclasses.replace(counters)
  for _ in range(2):
    later.add_time(2.5, jax.make_mesh((8,), ('data',)))
  assert later.secs == 7
  assert later.device_secs_by_kind == {'TPU v3': 10, 'cpu': 45}
  assert counters.device_secs_by_kind == {'TPU v3': 10, 'cpu': 5}
