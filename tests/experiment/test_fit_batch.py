"""A batch is split into the fewest microbatches that fit, before training."""

import dataclasses
import functools
import json
import types

import jax
import pytest

from tests import toy
from vit_jax import run as run_lib
from vit_jax.experiment import fit_batch
from vit_jax.run import loop

pytestmark = pytest.mark.slow  # It trains models.

CONFIG = toy.config(
    total={'steps': 4}, batch_size=24,
    optimizer={'name': 'sgd', 'learning_rate': 0.1},
    log={'every': {'steps': 1}}, checkpoint={'every': {'steps': 2}},
    evals={'test': {}, 'own': {'batch_size': 120}})
GIB = 2**30
STATE = 2 * GIB  # Memory of the faked steps that microbatches do not reduce.


@pytest.fixture(scope='module')
def experiment():
  return toy.build(**CONFIG)


class FakeStep:
  """Replaces a jitted function that is lowered and compiled."""

  def __init__(self, temp_bytes, *, error=None):
    self._temp_bytes = temp_bytes
    self._error = error

  def lower(self, *_):
    return self

  def compile(self):
    if self._error:
      raise jax.errors.JaxRuntimeError(self._error)
    return self

  def memory_analysis(self):
    return types.SimpleNamespace(
        argument_size_in_bytes=STATE, output_size_in_bytes=STATE,
        alias_size_in_bytes=STATE, generated_code_size_in_bytes=0,
        temp_size_in_bytes=self._temp_bytes)


def with_steps(experiment, build_step, *, accumulation='auto'):
  """Returns the experiment with a fake step by number of microbatches."""
  return dataclasses.replace(toy.faked(experiment, train_step=property(
      lambda self: build_step(self.config.num_microbatches))),
                             config=dataclasses.replace(
                                 experiment.config, accumulation=accumulation))


def shrinking(num_microbatches):
  """A step of 2 GiB state, 1 GiB gradients and 16 / n GiB activations."""
  return FakeStep(GIB + 16 * GIB // num_microbatches)


def test_the_step_of_a_batch_that_fits_is_compiled_once_and_trained(experiment):
  built, step = [], shrinking(1)
  experiment = with_steps(experiment, lambda n: built.append(n) or step)
  fitted = fit_batch.fit(experiment, free_bytes=20 * GIB)
  assert fitted.step is step
  assert fitted.experiment.config.accumulation == 1
  assert (built, fitted.message) == ([1], '')


@pytest.mark.parametrize(('free', 'expected'), [
    # 2 + 1 + 16 / n GiB, where n divides 24.
    (12, 2), (7.5, 4), (5.1, 8), (3.7, 24)])
def test_the_fewest_microbatches_that_fit_are_used(experiment, free, expected):
  fitted = fit_batch.fit(
      with_steps(experiment, shrinking), free_bytes=int(free * GIB))
  assert fitted.experiment.config.accumulation == expected
  assert fitted.experiment.config.eval_batch_size == 24 // expected
  assert fitted.message == (
      f'The batch of 24 needs 19.0 GiB per device, but {free:.1f} GiB are '
      f'available: computed in {expected} microbatches '
      f'(accumulation={expected}).')


def test_more_microbatches_are_used_when_the_compiler_runs_out_of_memory(
    experiment):
  message = ('RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used '
             '{}G of 15.48G hbm.')
  experiment = with_steps(experiment, lambda n: FakeStep(GIB, error={
      1: message.format('20.00'), 2: message.format('16.00')}.get(n)))
  fitted = fit_batch.fit(experiment, free_bytes=None)
  assert fitted.experiment.config.num_microbatches == 3
  assert '20.0 GiB per device, but 15.5 GiB are available' in fitted.message


def test_all_processes_follow_process_0(experiment, monkeypatch):
  monkeypatch.setattr(fit_batch.coordination, 'run_on_first',
                      lambda name, function: 7.5 * GIB)
  fitted = fit_batch.fit(with_steps(experiment, shrinking), free_bytes=20 * GIB)
  assert fitted.experiment.config.num_microbatches == 4


def test_a_fixed_accumulation_is_used_or_is_an_error(experiment):
  experiment = with_steps(experiment, shrinking, accumulation=2)
  fitted = fit_batch.fit(experiment, free_bytes=12 * GIB)
  assert (fitted.experiment.config.accumulation, fitted.message) == (2, '')
  with pytest.raises(ValueError, match=(
      'batch of 24 in 2 microbatches needs 11.0 GiB per device, but 10.0 GiB '
      'are available.*accumulation=auto')):
    fit_batch.fit(experiment, free_bytes=10 * GIB)


def test_an_error_names_the_excess_if_nothing_fits(experiment):
  with pytest.raises(ValueError, match=(
      'in 24 microbatches needs 3.7 GiB per device, but 3.0 GiB are .*remat')):
    fit_batch.fit(with_steps(experiment, shrinking), free_bytes=3 * GIB)
  with pytest.raises(ValueError, match='state .* but 1.0 KiB are available'):
    fit_batch.check_state_fits(experiment, free_bytes=1024)
  fit_batch.check_state_fits(experiment, free_bytes=GIB)


def test_a_resumed_run_keeps_its_microbatches_if_they_fit(experiment):
  experiment = with_steps(experiment, shrinking)
  fitted = fit_batch.fit(experiment, free_bytes=20 * GIB, previous=3)
  assert (fitted.experiment.config.num_microbatches, fitted.message) == (3, '')
  fitted = fit_batch.fit(experiment, free_bytes=8 * GIB, previous=3)
  assert fitted.experiment.config.num_microbatches == 4
  assert 'in 3 microbatches needs 8.3 GiB per device' in fitted.message
  assert 'dropout masks differ from here on' in fitted.message


@pytest.mark.parametrize(('message', 'error', 'words'), [
    *((text, ValueError,
       'evaluator test ran out .* 120.*--config.evals.test.batch_size')
      for text in ('RESOURCE_EXHAUSTED: Out of memory',
                   'INTERNAL: YNNPACK operation failed: error')),
    ('INTERNAL: a bug', jax.errors.JaxRuntimeError, 'INTERNAL')])
def test_out_of_memory_errors_name_the_setting(message, error, words):
  def fail(params, on_batch):
    raise jax.errors.JaxRuntimeError(message)

  experiment = toy.faked(toy.build(evals={'test': {'batch_size': 120}}),
                         evaluators={'test': fail})
  with pytest.raises(error, match=words):
    experiment.evaluate('test', {})


def test_a_run_saves_its_microbatches_and_keeps_them_when_resumed(
    experiment, tmp_path, capsys, monkeypatch):
  @functools.cache
  def compiled(num_microbatches):
    """Compiles each step once for both runs."""
    return experiment.with_microbatches(num_microbatches).train_step.lower(
        experiment.abstract_state, experiment.abstract_batch).compile()

  def needed(num_microbatches):
    return fit_batch.needed_bytes(compiled(num_microbatches).memory_analysis())

  assert needed(2) < needed(1)
  for steps, free in ((2, needed(2)), (4, None)):
    monkeypatch.setattr(
        loop.device_memory, 'free_bytes', lambda mesh, free=free: free)
    run_lib.train(dataclasses.replace(
        with_steps(experiment, lambda n: toy.fake_step(compiled(n))),
        total_steps=steps), tmp_path)
    assert ('accumulation' in capsys.readouterr().out) == (steps == 2)
    config = json.loads((tmp_path / 'config.json').read_text())
    assert config['accumulation'] == 2
