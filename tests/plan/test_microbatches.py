"""A batch is computed in as few parts as fit, and that is known beforehand."""

import dataclasses
import functools
import json
import shutil
import types

import jax
import numpy as np
import pytest

from vit_jax import data
from vit_jax import run as run_lib
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.plan import microbatches as microbatches_lib
from vit_jax.training import writer

CONFIG = {
    'total': {'steps': 4}, 'batch_size': 24,
    'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
              'patch': 4},
    'data': {'source': 'digits', 'resolution': 8},
    'optimizer': {'name': 'sgd', 'learning_rate': 0.1,
                  'schedule': {'name': 'constant'}},
    'log': {'every': {'steps': 1}},
    'checkpoint': {'every': {'steps': 2}},
    'evals': {'test': {}, 'own': {'batch_size': 120}},
}
GIB = 2**30
STATE = 2 * GIB  # What the faked steps need, whatever their parts.


@pytest.fixture(scope='module')
def wired():
  return experiment_lib.build(
      config_lib.resolve(CONFIG), devices=jax.devices()[:1])


class Step:
  """Stands where a jitted function is lowered and compiled."""

  def __init__(self, temporaries, *, refusal=None):
    self._temporaries = temporaries
    self._refusal = refusal

  def lower(self, *_):
    return self

  def compile(self):
    if self._refusal:
      raise jax.errors.JaxRuntimeError(self._refusal)
    return self

  def memory_analysis(self):
    return types.SimpleNamespace(
        argument_size_in_bytes=STATE, output_size_in_bytes=STATE,
        alias_size_in_bytes=STATE, generated_code_size_in_bytes=0,
        temp_size_in_bytes=self._temporaries)


def faked(wired, steps, *, accumulation='auto'):
  """Returns the experiment with steps by parts, and those built beside its own.
  """
  compiled = []

  @functools.cache
  def build_step(parts):
    if parts != first:
      compiled.append(parts)
    return steps(parts)

  config = dataclasses.replace(wired.config, accumulation=accumulation)
  first = 1 if accumulation == 'auto' else accumulation
  return dataclasses.replace(
      wired, config=config, build_step=build_step), compiled


def shrinking(parts):
  """2 GiB of state, 1 of gradients, and 16 that divide into the parts."""
  return Step(GIB + 16 * GIB // parts)


def test_a_batch_that_fits_is_compiled_once_and_nothing_is_said(wired):
  experiment, compiled = faked(wired, shrinking)
  fitted = microbatches_lib.fit(experiment, free_bytes=20 * GIB)
  assert fitted.step is experiment.train_step
  assert fitted.experiment.config.accumulation == 1
  assert (compiled, fitted.note) == ([], '')


@pytest.mark.parametrize(('free', 'parts', 'compiled'), [
    # 2 + 1 + 16 / parts; every part that fits is one that divides 24.
    (12, 2, [2]), (7.5, 4, [3, 4]), (5.1, 8, [4, 8]), (3.7, 24, [6, 24])])
def test_it_is_computed_in_the_fewest_parts_that_fit(
    wired, free, parts, compiled):
  experiment, tried = faked(wired, shrinking)
  evaluated = []
  experiment = dataclasses.replace(
      experiment, build_evaluators=lambda n: evaluated.append(n) or {})
  fitted = microbatches_lib.fit(experiment, free_bytes=int(free * GIB))
  assert fitted.experiment.config.accumulation == parts
  assert tried == compiled
  assert evaluated == [parts]
  assert fitted.note == (
      f'The batch of 24 takes 19.0 GiB a device and {free:.1f} GiB are there: '
      f'computed in {parts} parts (accumulation={parts}).')


def test_a_second_try_that_needs_no_less_does_not_lead_to_the_most_parts():
  choices = [2**i for i in range(10)]
  assert microbatches_lib.next_parts(choices, {1: 20, 2: 22}, 15) == 4


@pytest.mark.parametrize('message', [
    'RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used {}G of '
    '15.48G hbm. Exceeded hbm capacity by 4.52G.',
    'RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required '
    'for HLO temporaries ({}G) exceeds available HBM (15.48G).'])
def test_a_refusal_of_the_compiler_leads_to_more_parts(wired, message):
  experiment, compiled = faked(
      wired, lambda parts: Step(GIB, refusal={
          1: message.format('20.00'), 2: message.format('16.00')}.get(parts)))
  fitted = microbatches_lib.fit(experiment, free_bytes=None)
  assert compiled == [2, 3]
  assert '20.0 GiB a device and 15.5 GiB are there' in fitted.note


def test_a_refusal_that_names_less_than_there_is_speaks_of_no_difference(wired):
  experiment, _ = faked(wired, lambda parts: Step(0, refusal=(
      'RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required '
      'for HLO temporaries (14.48G) exceeds available HBM (15.48G).')),
      accumulation=2)
  with pytest.raises(ValueError, match=(
      'takes 14.5 GiB a device, or more: it was refused, though 15.5 GiB')):
    microbatches_lib.fit(experiment, free_bytes=None)


def test_another_failure_of_the_compiler_is_not_taken_for_one_of_memory(wired):
  experiment, _ = faked(wired, lambda _: Step(0, refusal='INTERNAL: a bug'))
  with pytest.raises(jax.errors.JaxRuntimeError, match='a bug'):
    microbatches_lib.fit(experiment, free_bytes=GIB)


def test_all_processes_take_the_parts_that_the_first_one_takes(
    wired, monkeypatch):
  told, own = [], []

  def first(name, act):
    del name
    own.append(act())
    return told.pop(0)

  monkeypatch.setattr(microbatches_lib.agreement, 'on_first', first)
  experiment, compiled = faked(wired, shrinking)
  # Here two would do, and there four are needed.
  told += [3, 4, 4]
  fitted = microbatches_lib.fit(experiment, free_bytes=12 * GIB)
  assert fitted.experiment.config.parts == 4
  assert (own, compiled) == ([2, 3, 4], [3, 4])
  # The other way round: here the batch would not do in one.
  told += [1]
  fitted = microbatches_lib.fit(experiment, free_bytes=12 * GIB)
  assert (fitted.experiment.config.parts, told) == (1, [])
  told += [0]
  with pytest.raises(ValueError, match='takes 19.0 GiB a device'):
    microbatches_lib.fit(experiment, free_bytes=20 * GIB)


def test_a_process_that_cannot_have_the_first_ones_parts_says_so(
    wired, monkeypatch):
  monkeypatch.setattr(microbatches_lib.agreement, 'on_first', lambda *_: 1)
  experiment, _ = faked(wired, lambda _: Step(GIB, refusal=(
      'RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.00G '
      'of 15.48G hbm. Exceeded hbm capacity by 4.52G.')))
  with pytest.raises(ValueError, match='process 0: .* It fits on process 0'):
    microbatches_lib.fit(experiment, free_bytes=None)


def test_what_was_asked_for_is_taken_or_is_an_error(wired):
  experiment, compiled = faked(wired, shrinking, accumulation=2)
  fitted = microbatches_lib.fit(experiment, free_bytes=12 * GIB)
  assert (fitted.experiment.config.accumulation, fitted.note) == (2, '')
  with pytest.raises(ValueError, match=(
      r'24 images in 2 part\(s\) takes 11.0 GiB a device, 1.0 GiB more than '
      r'the 10.0 GiB .*accumulation=auto')):
    microbatches_lib.fit(experiment, free_bytes=10 * GIB)
  assert not compiled


def test_what_fits_in_no_parts_is_an_error_that_says_by_how_much(wired):
  experiment, _ = faked(wired, shrinking)
  with pytest.raises(ValueError, match=(
      r'in 24 part\(s\) takes 3.7 GiB a device, 682.7 MiB more .*remat')):
    microbatches_lib.fit(experiment, free_bytes=3 * GIB)
  with pytest.raises(ValueError, match=r'The state .* more than the 1.0 KiB'):
    microbatches_lib.check_state(wired, free_bytes=1024)
  microbatches_lib.check_state(wired, free_bytes=GIB)


def test_batches_that_wait_on_the_devices_need_memory_too(wired):
  batch = microbatches_lib.device_bytes(wired.abstract_batch)
  experiment, _ = faked(wired, shrinking)
  fit = {'free_bytes': 19 * GIB + 2 * batch}
  fitted = microbatches_lib.fit(experiment, **fit, batches_ahead=2)
  assert fitted.experiment.config.parts == 1
  fitted = microbatches_lib.fit(experiment, **fit, batches_ahead=3)
  assert fitted.experiment.config.parts == 2


def test_a_run_goes_on_in_the_parts_it_was_begun_in_if_they_fit(wired):
  experiment, _ = faked(wired, shrinking)
  fitted = microbatches_lib.fit(experiment, free_bytes=20 * GIB, earlier=3)
  assert (fitted.experiment.config.parts, fitted.note) == (3, '')
  fitted = microbatches_lib.fit(experiment, free_bytes=8 * GIB, earlier=3)
  assert fitted.experiment.config.parts == 4
  assert 'in 3 parts takes 8.3 GiB a device' in fitted.note
  assert 'draws other masks from here on' in fitted.note


def test_parts_do_not_forget_what_was_counted(wired):
  assert wired.flops_per_image > 0
  assert 'flops_per_image' in vars(wired.in_parts(2))
  with pytest.raises(ValueError, match='does not divide'):
    wired.in_parts(5)


def test_the_memory_of_a_cpu_is_shared_by_its_devices():
  def free(number):
    return microbatches_lib.free_bytes(jax.make_mesh(
        (number,), ('data',), devices=jax.devices()[:number],
        axis_types=(jax.sharding.AxisType.Auto,)))
  assert free(4) == pytest.approx(free(1) / 4, rel=0.2)


def test_memory_that_runs_out_after_all_is_said_in_words(wired):
  config = config_lib.resolve(
      {**CONFIG, 'evals': {'test': {'batch_size': 120}}})
  with pytest.raises(ValueError, match=(
      'evaluator test ran out .* of 120 .*--config.evals.test.batch_size')):
    with microbatches_lib.explained_evaluation(config, 'test'):
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory')
  with pytest.raises(jax.errors.JaxRuntimeError, match='INTERNAL'):
    with microbatches_lib.explained_evaluation(config, 'test'):
      raise jax.errors.JaxRuntimeError('INTERNAL: a bug')


def test_a_run_in_the_parts_that_fit_is_the_run_of_the_whole_batch(
    wired, tmp_path, capsys, monkeypatch):
  compiled, evaluated = {}, []
  eval_batches = data.eval_batches

  def of_size(*args, batch_size, **options):
    evaluated.append(batch_size)
    return eval_batches(*args, batch_size=batch_size, **options)

  monkeypatch.setattr(data, 'eval_batches', of_size)

  def build_step(parts):
    """Compiled once for the runs of this test."""
    if parts not in compiled:
      compiled[parts] = wired.build_step(parts).lower(
          wired.abstract_state, wired.abstract_batch).compile()
    step = compiled[parts]
    return types.SimpleNamespace(
        lower=lambda *_: types.SimpleNamespace(compile=lambda: step))

  experiment = dataclasses.replace(wired, build_step=build_step)

  def train(name, *, steps=4, **options):
    run_lib.train(
        dataclasses.replace(experiment, total_steps=steps), tmp_path / name,
        show_parameters=False, **options)
    return capsys.readouterr().out

  def needed(parts):
    return microbatches_lib.needed_bytes(
        wired, compiled[parts].memory_analysis(),
        batches_ahead=run_lib.IN_FLIGHT)

  assert 'part' not in train('whole')
  assert evaluated == [24, 120]
  build_step(2)
  assert needed(2) < needed(1)
  said = train('parts', steps=2, free_bytes=needed(2))
  assert 'computed in 2 parts (accumulation=2)' in said
  assert '24 images each in 2 parts' in said
  assert 'evaluated 12 at once, as many as a part of the batch: test\n' in said
  saved = json.loads((tmp_path / 'parts' / 'config.json').read_text())
  assert saved['accumulation'] == 2

  # So it does where it was killed before its first checkpoint, and where
  # another config was tried there before, it does not.
  shutil.copytree(tmp_path / 'parts', tmp_path / 'killed')
  shutil.rmtree(tmp_path / 'killed' / 'checkpoints')
  assert '24 images each in 2 parts' in train('killed', steps=2)
  shutil.rmtree(tmp_path / 'killed' / 'checkpoints')
  (tmp_path / 'killed' / 'config.json').write_text(
      json.dumps({**saved, 'seed': 7}))
  assert 'parts' not in train('killed', steps=2)

  # It goes on in two parts, where there is room for the whole batch as well.
  said = train('parts')
  assert '24 images each in 2 parts' in said
  assert 'accumulation' not in said
  assert evaluated[-2:] == [12, 120]
  whole, parts = (
      [[row[name] for row in writer.read_rows(tmp_path / run) if name in row]
       for name in ('train/loss', 'test/loss', 'test/examples')]
      for run in ('whole', 'parts'))
  assert (len(whole[0]), whole[2], parts[2]) == (4, [360], [360, 360])
  np.testing.assert_allclose(parts[0], whole[0], rtol=1e-5)
  np.testing.assert_allclose(parts[1][-1], whole[1][-1], rtol=1e-5)
