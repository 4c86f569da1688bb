"""Choice and mean of the runs of a model soup."""

import numpy as np
import pytest

from vit_jax import sweep as sweep_lib
from vit_jax.commands import sweep as command
from vit_jax.sweep import soup

RUNS = {'a': 4.0, 'b': 8.0, 'c': -9.0, 'd': 3.0}


def average(evaluate):
  params, members, value = soup.average(
      list(RUNS), lambda name: {'x': np.float32([RUNS[name]])}, evaluate)
  return params['x'].item(), members, value


def test_a_uniform_soup_is_the_mean_of_all_runs():
  mean, members, value = average(None)
  assert mean == pytest.approx(np.mean(list(RUNS.values())))
  assert members == list(RUNS) and value is None


def test_a_run_joins_a_greedy_soup_only_if_it_is_not_worse():
  seen = []

  def evaluate(params):
    seen.append(params['x'].item())
    return -abs(params['x'].item() - 5.5)

  mean, members, value = average(evaluate)
  assert members == ['a', 'b', 'd'] and mean == 5.0 and value == -0.5
  assert seen == [4.0, 6.0, 1.0, 5.0]
  # Not a number is worse than any value.
  mean, members, _ = average(
      lambda params: float('nan') if params['x'] > 4 else 1.0)
  assert members == ['a', 'c', 'd'] and mean == pytest.approx(-2 / 3)


@pytest.mark.parametrize(('grid', 'words'), [
    (['optimizer.learning_rate=0.1'], 'there is only one'),
    (['model.width=8,16'], 'model.width is 8 in the run width=8 and 16 in'),
    (['data.resolution=8,16'], 'data.resolution is')])
def test_runs_of_different_architectures_are_not_averaged(file, grid, words):
  sweep = sweep_lib.plan(file, grid=command.parse_grid(grid), soup='greedy')
  with pytest.raises(ValueError, match=words):
    soup.check(sweep)
