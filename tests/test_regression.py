"""Regression: training, evaluation, checkpoint and prediction."""

import json

import numpy as np
import pytest

from tests import in_memory
from tests import toy
import vit_jax
from vit_jax import __main__ as main
from vit_jax import run as run_lib
from vit_jax.data.sources import open_source
from vit_jax.experiment import fit_weights
from vit_jax.weights import open as open_lib

pytestmark = pytest.mark.slow  # It trains models.

CONFIG = toy.config(
    total={'steps': 60}, batch_size=32, model={'patch': 8},
    data={'source': 'lamps'}, optimizer={'learning_rate': 1e-2},
    evals={'test': {'every': {'steps': 30}}},
    checkpoint={'best': 'test/root_mean_square_error'})


def test_regression_learns_targets_in_their_units(
    tmp_path, monkeypatch, capsys):
  opened = in_memory.opened(
      {'train': in_memory.brightness(96),
       'test': in_memory.brightness(40, seed=1)},
      num_classes=2, targets=('light', 'dark'))
  monkeypatch.setattr(open_source, 'open_splits', lambda *_, **__: opened)
  run_lib.train(toy.build(**CONFIG), tmp_path)
  assert 'targets light (' in capsys.readouterr().out
  metrics = json.loads((tmp_path / 'summary.json').read_text())['metrics']
  # Predicting the mean has an error of 29.
  assert metrics['test/root_mean_square_error_light'] < 6
  assert metrics['test/r2'] > 0.95
  weights = open_lib.open(tmp_path, which='best')
  labels = opened.splits['train']._labels
  np.testing.assert_allclose(
      weights.run['data']['target_mean'], np.nanmean(labels, 0), rtol=1e-6)
  assert weights.run['objective']['loss'] == 'mse'
  assert weights.preprocess.labels == ('light', 'dark')
  model = vit_jax.load(tmp_path, log=None)
  images, labels = in_memory.brightness(40, seed=1)
  for estimate, target in zip(model.predict(images), labels):
    assert estimate.names == ('light', 'dark')
    assert abs(estimate.values[0] - target[0]) < 20
  # Its outputs have the units of the targets.
  model.save(tmp_path / 'converted.npz', form='npz')
  config = toy.write(tmp_path / 'config.py', **CONFIG)
  found = []
  for path in (tmp_path, tmp_path / 'converted.npz'):
    assert main.main(['evaluate', f'--workdir={path}', f'--config={config}',
                      f'--json={tmp_path}/found.json']) == 0
    found.append(json.loads((tmp_path / 'found.json').read_text())['metrics'])
  for name in ('root_mean_square_error_light', 'r2'):
    np.testing.assert_allclose(
        found[0][f'test/{name}'], found[1][f'test/{name}'], rtol=1e-3)


def test_a_kept_head_and_a_resumed_run_keep_the_scale_of_their_targets(
    tmp_path, monkeypatch):
  test = in_memory.brightness(40, seed=1)

  def train(name, *, factor, seed, **changes):
    images, labels = in_memory.brightness(64, seed=seed)
    opened = in_memory.opened(
        {'train': (images, factor * labels), 'test': test}, num_classes=2,
        targets=('light', 'dark'))
    monkeypatch.setattr(open_source, 'open_splits', lambda *_, **__: opened)
    experiment = toy.build(**toy.config(**{**CONFIG, **changes}))
    run_lib.train(
        experiment, tmp_path / name,
        weights=fit_weights.open_initial(experiment.config, tmp_path))
    return next(row['test/r2'] for row in toy.rows(tmp_path / name)
                if 'test/r2' in row)

  first = train('first', factor=1, seed=0, total={'steps': 20})
  with pytest.raises(ValueError, match='other values.*data.target_mean='):
    train('first', factor=0.5, seed=0, total={'steps': 21})
  vit_jax.load(tmp_path / 'first', log=None, which='latest').save(
      tmp_path / 'weights.npz', form='npz')
  learned = [train(
      f'from_{name}', factor=0.5, seed=2, total={'steps': 1},
      init={'checkpoint': str(tmp_path / name), 'new': []},
      optimizer={'learning_rate': 1e-9},
      data={'source': 'lamps', 'mean': 0.5, 'std': 0.5},
      evals={'test': {'every': {'steps': 1}}})
             for name in ('first', 'weights.npz')]
  np.testing.assert_allclose(learned, first, rtol=1e-3)
