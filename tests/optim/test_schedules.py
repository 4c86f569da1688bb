"""Schedules against their formulas."""

import math

import numpy as np
import pytest

from vit_jax import schema
from vit_jax.optim import schedules

TOTAL = 100


def to_steps(duration):
  return duration.to_steps(batch_size=10, num_examples=100, total_steps=TOTAL)


def build(name, peak=2.0, total_steps=TOTAL, **section):
  config = schema.parse(
      schedules.ScheduleConfig, {'name': name} | section, where='schedule')
  return schedules.build(
      config, peak=peak, total_steps=total_steps, to_steps=to_steps)


def values(schedule, steps=range(TOTAL + 1)):
  return np.array([schedule(step) for step in steps])


WARMUP = {'steps': 20}

# The factor of the peak t steps after a warm-up of 20, of a run of 100.
BODIES = {
    'constant': ({}, lambda t: 1.0),
    'linear': ({}, lambda t: 1 - t / 80),
    'linear to a tenth': ({'end': 0.1}, lambda t: 0.1 + 0.9 * (1 - t / 80)),
    'cosine': ({}, lambda t: 0.5 * (1 + math.cos(math.pi * t / 80))),
    'cosine to a tenth': (
        {'end': 0.1},
        lambda t: 0.1 + 0.45 * (1 + math.cos(math.pi * t / 80))),
    'polynomial': ({'power': 2.0}, lambda t: (1 - t / 80) ** 2),
    'polynomial to a tenth': (
        {'power': 0.5, 'end': 0.1}, lambda t: 0.1 + 0.9 * (1 - t / 80) ** 0.5),
    'stair': ({'stairs': [[{'steps': 50}, 0.1], [{'percent': 75}, 0.2]]},
              lambda t: 1.0 if t < 30 else 0.1 if t < 55 else 0.02),
    'rsqrt': ({'timescale': {'steps': 5}}, lambda t: (5 / (t + 5)) ** 0.5),
    'rsqrt of ten thousand': ({}, lambda t: (10_000 / (t + 10_000)) ** 0.5),
}


@pytest.mark.parametrize('case', BODIES)
def test_every_step_follows_the_formula(case):
  section, factor = BODIES[case]
  got = values(build(case.split()[0], warmup=WARMUP, **section))
  want = [2.0 * (step / 20 if step < 20 else factor(step - 20))
          for step in range(TOTAL + 1)]
  np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-7)


def test_nothing_rises_again_after_the_end():
  for name in ('linear', 'cosine'):
    assert build(name, end=0.25)(10 * TOTAL) == pytest.approx(0.5)
  assert build('rsqrt', cooldown={'steps': 10})(10 * TOTAL) == 0.0


@pytest.mark.parametrize('name', ['constant', 'rsqrt'])
def test_cooldown_falls_linearly_to_zero_at_the_end(name):
  section = {'timescale': {'steps': 5}} if name == 'rsqrt' else {}
  without = values(build(name, warmup=WARMUP, **section))
  cooled = values(build(
      name, warmup=WARMUP, cooldown={'percent': 25}, **section))
  fall = np.minimum(1.0, (100 - np.arange(101)) / 25)
  np.testing.assert_allclose(cooled, without * fall, rtol=1e-6)
  assert cooled[75] == without[75]
  assert cooled[100] == 0.0


def test_run_of_warmup_only_increases_to_its_end():
  for name in ('constant', 'linear', 'cosine', 'rsqrt'):
    schedule = build(name, warmup={'percent': 100})
    assert schedule(99) == pytest.approx(2.0 * 0.99)


def test_warmup_limit_applies_to_short_runs_only():
  limit = {'warmup_limit': {'percent': 15}}
  np.testing.assert_array_equal(
      values(build('linear', warmup={'steps': 10_000}, **limit)),
      values(build('linear', warmup={'steps': 15})))
  np.testing.assert_array_equal(
      values(build('linear', warmup={'steps': 10}, **limit)),
      values(build('linear', warmup={'steps': 10})))


def test_stairs_multiply_at_one_step_and_during_the_warm_up():
  rates = values(build('stair', warmup={'steps': 20}, stairs=[
      [{'steps': 10}, 0.5], [{'steps': 50}, 0.1], [{'percent': 50}, 0.1]]))
  np.testing.assert_allclose(
      [rates[step] for step in (9, 10, 20, 49, 50)],
      [0.9, 0.5, 1.0, 1.0, 0.01], rtol=1e-6)
