"""Initial weights replace every copy of the initial parameters."""

import jax
import numpy as np
import pytest

from tests import toy
from vit_jax import tree
from vit_jax.experiment import fit_weights


def copies(state):
  """Returns the arrays of a state that are those of the patch embedding."""
  leaves = tree.flatten(jax.device_get(
      (state.params, state.opt_state, state.average)))
  return [value for name, value in leaves.items()
          if name.endswith('patches/kernel') and np.any(value)]


def test_schedule_free_has_no_second_average():
  with pytest.raises(ValueError, match='has its own average. Set averaging'):
    toy.build(optimizer={'name': 'schedule_free'}, averaging=0.9)


# The others keep the average and the initial parameters.
@pytest.mark.parametrize(('name', 'count'), [
    ('adam', 1), ('schedule_free', 3), ('optax.contrib.dog', 2)])
def test_initial_weights_replace_all_copies_in_the_state(name, count):
  experiment = toy.build(optimizer={'name': name}, init={'new': []})
  rng = np.random.default_rng(0)
  given = jax.tree.map(
      lambda x: rng.normal(size=x.shape).astype(x.dtype),
      experiment.model_params)
  expected = given['patches']['kernel']
  state, _ = fit_weights.start(
      experiment, fit_weights.weights_of(experiment, given))
  found = copies(state)
  assert len(found) == count
  for value in found:
    np.testing.assert_array_equal(value, expected)
  batch = next(experiment.batches(start_step=0))
  state, loss = experiment.train_step(state, batch)
  assert np.isfinite(loss)
  average = tree.flatten(state.eval_params)['patches/kernel']
  assert (average != expected).any()
