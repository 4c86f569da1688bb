"""A small sweep, and training that only writes a summary."""

import json
import os
import pathlib

import pytest

from tests import toy


@pytest.fixture(scope='session')
def file(tmp_path_factory):
  return toy.write(
      tmp_path_factory.mktemp('config') / 'toy.py', total={'steps': 15},
      batch_size=32, model={'pooling': 'average'},
      evals={'test': {'split': 'test', 'batch_size': 120}},
      checkpoint={'every': {'percent': 100}},
      sweep={'grid': {'optimizer': {'learning_rate': [1e-6, 0.01]}},
             'held_out': 20, 'seeds': 2})


class FakeTraining:
  """Replaces training: records the names of runs and writes summaries.

  Every metric is the learning rate plus 0.1 times the seed, and 0.5 minus that
  value in the best checkpoint, if there is one. Batches of 8 diverge, and
  batches of 24 have no finite metric. `signal` is sent after the run of the
  name `signal_after`. `held` counts the experiments in memory.
  """

  def __init__(self):
    self.names, self.held, self._live = [], [], toy.Live()
    self.signal_after = self.signal = None

  def __call__(self, experiment, workdir, **_):
    from vit_jax.training import health  # Not before pytest's import hook.
    workdir = pathlib.Path(workdir)
    self.names.append(workdir.name)
    self.held.append(self._live.count_with(experiment))
    config = experiment.config
    if config.batch_size == 8:
      raise health.NonFiniteError('The loss is not finite at step 3.\nMore.')
    value = config.optimizer.learning_rate + 0.1 * config.seed
    if config.batch_size == 24:
      value = float('nan')
    summary = {'metrics': {
        f'{name}/{metric}': value for name in config.evals
        for metric in ('loss', 'accuracy', 'precision_at_1')}}
    if config.checkpoint.best:
      summary['best'] = {'metric': config.checkpoint.best, 'metrics': {
          name: 0.5 - value for name, value in summary['metrics'].items()}}
    workdir.mkdir(parents=True)
    (workdir / 'summary.json').write_text(json.dumps(summary))
    if workdir.name == self.signal_after:
      os.kill(os.getpid(), self.signal)
    return summary


@pytest.fixture
def training(monkeypatch):
  from vit_jax import run as run_lib
  fake = FakeTraining()
  monkeypatch.setattr(run_lib, 'train', fake)
  return fake
