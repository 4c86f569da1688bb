"""Initial weights replace every copy of the initial parameters."""

import pathlib

import jax
import ml_collections
import numpy as np
import pytest

from tests import leaves
from tests import random_models
from tests import toy
import vit_jax
from vit_jax import registry
from vit_jax import tree
from vit_jax.experiment import fit_weights


def copies(state):
  """Returns the arrays of a state that are those of the patch embedding."""
  leaves = tree.flatten(jax.device_get(
      (state.params, state.opt_state, state.average)))
  return [value for name, value in leaves.items()
          if name.endswith('patches/kernel') and np.any(value)]


# The others keep the average and the initial parameters.
@pytest.mark.parametrize(('name', 'count'), [
    ('adam', 1), *[('schedule_free', 3), pytest.param(
        'optax.contrib.dog', 2, marks=pytest.mark.slow)] * leaves.has(
            registry.OPTIMIZERS['optax.NAME'])])
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


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  model = random_models.make({**toy.CONFIG['model'], 'num_classes': 10}, side=8)
  path = tmp_path_factory.mktemp('saved') / 'x'
  model.save(path)
  return model, path


def patches(state):
  return state.params['patches']['kernel']


def test_an_own_loop_starts_from_the_checkpoint_unless_random(saved, capsys):
  model, path = saved
  experiment = vit_jax.build(toy.config(init={'checkpoint': str(path)}))
  np.testing.assert_array_equal(
      patches(experiment.init_state()), model.params['patches']['kernel'])
  printed = ' '.join(capsys.readouterr().out.split())  # Lines are wrapped.
  assert f'Starting from {path}' in printed
  np.testing.assert_array_equal(
      patches(experiment.init_state(random=True)),
      experiment.random_params()['patches']['kernel'])


def test_a_mapping_of_settings_is_the_same_as_flags():
  settings = {
      'data.source': pathlib.Path('digits'), 'optimizer.learning_rate': 3e-4,
      'optimizer.clip_norm': None,
      'data.train_ops': [{'op': 'resize'}, {'op': 'flip'}],
      'total': {'epochs': 1}, 'data.allow_fewer': True, 'data.split': 'train',
      'optimizer.schedule': {'name': 'constant', 'warmup': {'steps': 1}}}
  flags = [f'{key}={value}' for key, value in settings.items()]
  configs = [vit_jax.build(toy.config(), overrides).config
             for overrides in (settings, flags)]
  default = vit_jax.build(toy.config()).config
  assert configs[0] == configs[1] != default
  assert vit_jax.build(ml_collections.ConfigDict(toy.config())).config == (
      default)
