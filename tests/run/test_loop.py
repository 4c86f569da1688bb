"""Counters over restarts, early stopping and failures of a run."""

import dataclasses
import errno
import json
import math
import os
import shutil
import signal
import types

import pytest

from tests import faults
from tests import random_models
from tests import toy
from vit_jax import evals
from vit_jax import registry
from vit_jax import run as run_lib
from vit_jax import schema
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.run import counters as counters_lib
from vit_jax.run import signals
from vit_jax.run import writer as writer_lib
from vit_jax.weights import open as open_lib

pytestmark = pytest.mark.slow  # It trains models.

CONFIG = toy.config(
    total={'steps': 40}, model={'dropout': 0.1},
    evals={'val': {'every': {'steps': 4}, 'batch_size': 120},
           'end': {'batch_size': 120}},
    log={'every': {'steps': 3}},
    checkpoint={'every': {'steps': 5}, 'best': 'val/loss'})
# The minimum is the third, at step 12; the last is for the best checkpoint.
LOSSES = [3.0, 2.5, 2.0, 2.1, math.nan, 2.2, 2.3, 2.4, 2.5, 2.6, 2.0]


class Killed(BaseException):
  """Ends a run without saving, as SIGKILL does."""


class Scripted:
  """An evaluator that returns the losses of a list."""

  def __init__(self, losses, *, begin=0, fail=None):
    self.calls = begin
    self._losses = losses
    self._fail = fail or {}

  def __call__(self, params, on_batch):
    del on_batch
    self.params = params
    if self.calls in self._fail:
      raise self._fail[self.calls]
    self.calls += 1
    return evals.Result({'loss': self._losses[self.calls - 1], 'examples': 360})


@pytest.fixture(scope='module')
def base():
  """An experiment whose steps are compiled once for this file."""
  experiment = toy.build(**CONFIG)
  compiled = experiment.train_step.lower(
      experiment.abstract_state, experiment.abstract_batch).compile()
  step = toy.fake_step(compiled)
  return experiment.with_step(step)


def scripted(
    base, *, losses=LOSSES, begin=0, fail=None, fail_at_end=None,
    **checkpoint):
  """Returns the experiment with scripted evaluators."""
  config = base.config
  return toy.faked(dataclasses.replace(
      base, config=dataclasses.replace(
          config, checkpoint=dataclasses.replace(
              config.checkpoint, **checkpoint))), evaluators={
                  'val': Scripted(losses, begin=begin, fail=fail),
                  'end': Scripted([9.0] * 10, fail=fail_at_end)})


train = run_lib.train


@pytest.fixture(scope='module', name='stopped')
def _stopped(base, tmp_path_factory):
  """A run that stopped early at step 20, whose best checkpoint is step 12.

  Returns experiment, summary and workdir.
  """
  experiment = scripted(base, patience=2)
  workdir = tmp_path_factory.mktemp('stopped')
  return experiment, train(experiment, workdir), workdir


@pytest.fixture
def workdir(stopped, tmp_path):
  """A copy of the run that stopped early."""
  return shutil.copytree(stopped[-1], tmp_path / 'run')


def test_training_stops_after_patience(base, stopped, tmp_path, capsys):
  _, summary, workdir = stopped
  assert (summary['steps'], summary['stopped_early']) == (20, True)
  best = summary['best']
  assert (best['metric'], best['value'], best['step']) == ('val/loss', 2.0, 12)
  assert summary['images'] == 8 * 20
  assert paths.find(workdir).name == '20'
  assert paths.find(workdir, which='best').name == '12'
  patience = schema.Duration(examples=72)
  assert train(scripted(base, patience=patience), tmp_path)['steps'] == 24
  assert ('val/loss has not improved on 2.00 of step 12 for 3 evaluation(s) '
          'and 12 steps: training stops') in ' '.join(
              capsys.readouterr().out.split())


def test_training_stops_when_a_metric_falls_below_a_fraction_of_its_first(
    base, tmp_path, capsys):
  stop = {'best': '', 'stop_below': (('val/loss', 0.7),)}
  summary = train(scripted(base, **stop), tmp_path)
  assert (summary['steps'], summary['stopped_early']) == (12, True)
  assert 'val/loss fell from 3 to 2: training stops' in capsys.readouterr().out
  # A run that stopped is finished.
  untouched = scripted(base, fail={0: AssertionError()}, **stop)
  assert train(untouched, tmp_path) == summary


def test_initial_weights_are_evaluated_and_may_be_the_best(base, tmp_path):
  summary = train(scripted(with_evaluator(
      base, 'val', at_start=True), losses=[1.0, *LOSSES]), tmp_path)
  assert [r['val/loss'] for r in writer_lib.read_rows(tmp_path)
          if r['step'] == 0 and 'val/loss' in r] == [1.0]
  assert summary['best']['step'] == 0
  kept = items.read_params(paths.find(tmp_path, which='best'))
  random_models.assert_same(kept, base.init_state().params)


def test_a_best_metric_that_is_not_reported_is_an_error(base, tmp_path):
  with pytest.raises(ValueError, match="is 'val/accuracy', but the metrics are "
                                       'val/loss, val/examples'):
    train(scripted(base, best='val/accuracy'), tmp_path)


def test_an_early_stop_logs_and_evaluates_the_last_step(stopped):
  _, summary, workdir = stopped
  written = writer_lib.read_rows(workdir)
  # Neither every third step nor the evaluation at the end was due at 20.
  assert [r['step'] for r in written if 'train/loss' in r][-2:] == [18, 20]
  assert [r['step'] for r in written if 'end/loss' in r] == [20]
  assert summary['metrics']['end/loss'] == 9.0


def test_all_evaluators_run_on_the_best_checkpoint_at_the_end(stopped):
  experiment, summary, workdir = stopped
  assert summary['best']['metrics'] == {
      'val/loss': LOSSES[5], 'val/examples': 360,
      'end/loss': 9.0, 'end/examples': 360}
  kept = items.read_params(paths.find(workdir, which='best'))
  for name in experiment.evaluators:
    random_models.assert_same(experiment.evaluators[name].params, kept)
  # The metrics of the last step do not change.
  assert summary['metrics']['val/loss'] != summary['best']['metrics'][
      'val/loss']


def test_a_best_last_checkpoint_is_evaluated_once(base, tmp_path, monkeypatch):
  experiment = scripted(
      base, losses=[5 - 0.1 * i for i in range(10)], patience=1)
  monkeypatch.setenv('HOME', str(tmp_path))
  summary = train(experiment, '~/run')
  assert {'checkpoints', 'summary.json', 'metrics.jsonl'} <= {
      path.name for path in (tmp_path / 'run').iterdir()}
  assert (summary['steps'], summary['stopped_early']) == (40, False)
  assert summary['best']['step'] == 40
  assert experiment.evaluators['val'].calls == 10
  assert summary['best']['metrics'] == {
      name: value for name, value in summary['metrics'].items()
      if not name.startswith('train/')}


def test_a_run_that_stopped_early_is_finished(base, workdir, capsys):
  before = {name: (workdir / name).read_bytes()
            for name in ('metrics.jsonl', 'summary.json')}
  (workdir / 'summary.json').unlink()  # It is written again.
  # Settings that an older checkpoint lacks have their defaults.
  random_models.edit_config(
      paths.find(workdir),
      lambda config: (config['data'].pop('sampling'), config.pop('card')))
  untouched = scripted(base, patience=2, fail={0: AssertionError()})
  train(untouched, workdir)
  assert train(untouched, workdir) == json.loads(before['summary.json'])
  printed = capsys.readouterr().out
  assert 'already finished at step 20 (stopped early)' in printed
  assert 'Changes' not in printed
  for name, content in before.items():
    assert (workdir / name).read_bytes() == content


def test_more_patience_resumes_a_run_that_stopped_early(base, workdir, capsys):
  summary = train(scripted(base, patience=4, begin=5), workdir)
  assert (summary['steps'], summary['stopped_early']) == (28, True)
  assert 'checkpoint.patience: 2 -> 4' in capsys.readouterr().out
  summary = train(scripted(base, patience=None, begin=7), workdir)
  assert (summary['steps'], summary['stopped_early']) == (40, False)


def test_without_a_best_metric_a_run_needs_no_best_checkpoint(base, workdir):
  shutil.rmtree(workdir / 'checkpoints/best')
  summary = train(scripted(base, best='', begin=5), workdir)
  assert summary['steps'] == 40 and not summary['best']


def test_a_forgotten_best_checkpoint_is_deleted(base, workdir):
  train(scripted(base, best='', begin=5), workdir)
  assert paths.find(workdir, which='auto').name == '40'


def test_a_best_checkpoint_that_a_killed_run_replaced_is_forgotten(
    base, tmp_path, capsys):
  with pytest.raises(Killed):
    train(scripted(base, losses=[3.0, 2.5, 2.6, 2.0], fail={4: Killed()}),
          tmp_path)
  assert paths.find(tmp_path, which='best').name == '16'
  summary = train(scripted(base, losses=[2.9] * 11, begin=3), tmp_path)
  assert summary['steps'] == 40 and not summary['best']
  assert 'of step 8, was replaced' in ' '.join(capsys.readouterr().out.split())
  assert paths.find(tmp_path, which='auto').name == '40'


def with_evaluator(experiment, name, **changes):
  """Returns the experiment with other settings of an evaluator."""
  config = experiment.config
  section = dataclasses.replace(config.evals[name], **changes)
  return dataclasses.replace(experiment, config=dataclasses.replace(
      config, evals={**config.evals, name: section}))


def test_metrics_of_earlier_settings_are_noted_in_a_finished_run(
    base, workdir, capsys):
  summary = train(scripted(
      with_evaluator(base, 'end', flip=True), patience=2), workdir)
  assert summary == json.loads((workdir / 'summary.json').read_text())
  assert 'before the settings or images of end changed' in ' '.join(
      capsys.readouterr().out.split())


def test_initial_weights_may_move_but_not_appear_before_a_run_resumes(
    base, workdir, tmp_path):
  for name, address in (('tuned', workdir), ('random', None)):
    with pytest.raises(Killed):
      train(scripted(base, fail={3: Killed()}), tmp_path / name,
            weights=address and open_lib.open(address))
  moved = open_lib.open(shutil.move(workdir, tmp_path / 'moved'))
  with pytest.raises(ValueError, match='started from random parameters, but'):
    train(scripted(base), tmp_path / 'random', weights=moved)
  with pytest.raises(Killed):
    train(scripted(base, begin=3, fail={4: Killed()}), tmp_path / 'tuned',
          weights=moved)


def test_a_run_interpolates_positions_as_its_initial_weights(
    base, workdir, tmp_path):
  weights = dataclasses.replace(open_lib.open(workdir), positions='cubic')
  with pytest.raises(Killed):
    train(scripted(base, fail={3: Killed()}), tmp_path, weights=weights)
  assert open_lib.open(tmp_path).positions == 'cubic'


@pytest.mark.parametrize(('changes', 'words'), [
    ({'seed': 1}, r'(?s)is finished, with a different config. Set a longer '
     r'checkpoint.patience.*seed: 0 -> 1'),
    ({'total': {'steps': 19}}, 'at step 20, but the config ends at step 19'),
])
def test_a_run_does_not_resume_with_an_incompatible_config(
    workdir, changes, words):
  with pytest.raises(ValueError, match=words):
    train(scripted(toy.build(**{**CONFIG, **changes}), patience=2), workdir)


def test_a_killed_run_stops_early_where_an_uninterrupted_one_does(
    base, stopped, tmp_path):
  with pytest.raises(Killed):
    train(scripted(base, patience=2, fail={4: Killed()}), tmp_path)
  assert paths.find(tmp_path).name == '15'
  train(scripted(base, patience=2, begin=3), tmp_path)
  faults.assert_same_end(tmp_path, stopped[-1])


def test_patience_that_is_given_later_may_end_a_run_at_once(
    base, stopped, tmp_path):
  with pytest.raises(Killed):
    train(scripted(base, fail={5: Killed()}), tmp_path)
  summary = train(scripted(base, patience=2, begin=4), tmp_path)
  assert summary['best'] == stopped[1]['best']


def test_a_signal_in_the_last_evaluation_changes_nothing(
    base, stopped, tmp_path):
  """The signal arrives between two evaluators."""
  cut = scripted(
      base, patience=2, fail_at_end={0: signals.Stopped(signal.SIGTERM)})
  with pytest.raises(signals.Stopped):
    train(cut, tmp_path)
  assert paths.find(tmp_path).name == '20'
  progress = items.read_config(paths.find(tmp_path) / 'progress')
  assert (progress['unimproved'], progress['label_kind']) == (1, 'single')
  summary = train(scripted(base, patience=2, begin=4), tmp_path)
  for key in ('steps', 'stopped_early', 'images', 'flops', 'best'):
    assert summary[key] == stopped[1][key]
  assert summary['metrics']['train/loss'] == stopped[1]['metrics']['train/loss']


def test_cost_counts_images_at_changing_batch_sizes(
    base, workdir, capsys, monkeypatch):
  assert not any('train/mfu' in row for row in toy.rows(workdir))
  monkeypatch.setattr(
      counters_lib, 'hardware', lambda kind: types.SimpleNamespace(
          name=kind, cores=1, peak_flops=1e9, peak_flops_per_core=1e9))
  per_image = 3 * registry.load(registry.FLOPS)(base).forward
  other = toy.build(**{**CONFIG, 'batch_size': 16, 'total': {'steps': 24}})
  summary = train(scripted(other, begin=5), workdir)
  assert summary['images'] == 20 * 8 + 4 * 16
  assert summary['flops'] == per_image * summary['images']
  last = [r for r in writer_lib.read_rows(workdir) if 'train/exaflops' in r][-1]
  assert last['train/exaflops'] == summary['exaflops']
  assert last['train/images_seen'] == summary['images']
  assert last['train/epoch'] == summary['images'] / 1437
  assert '224 images' in capsys.readouterr().out
  assert last['train/core_hours'] == last['train/device_hours']
  assert last['train/mfu'] == pytest.approx(
      last['train/images_per_sec'] * per_image / 1e9)


def test_a_failed_log_write_names_the_last_checkpoint(
    base, tmp_path, monkeypatch):
  def full_at_step_20(path, mode):
    if len(writer_lib.read_rows(tmp_path)) >= 10:
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return open(path, mode)

  monkeypatch.setattr(writer_lib, 'open', full_at_step_20, raising=False)
  with pytest.raises(errors.StorageError, match=(
      r'Cannot write a row of metrics.jsonl to .*: No space left on device.*'
      'the same command resumes from the last checkpoint')):
    train(scripted(base), tmp_path)
  # Closing waited for the checkpoint in progress.
  assert int(paths.find(tmp_path).name) in (15, 20)
