"""Regression metrics, compared with scikit-learn."""

import functools

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from vit_jax import losses

RNG = np.random.default_rng(0)
ANSWERS = RNG.normal(size=(10, 2)).astype(np.float32)
LABELS = (ANSWERS + 0.3 * RNG.normal(size=(10, 2))).astype(np.float32)
LABELS[3, 1] = np.nan
FACTS = {'targets': ('age', 'mass'), 'target_mean': (40.0, 2.0),
         'target_std': (10.0, 0.5)}


def build(toy, section, split, *, targets=('age', 'mass')):
  return toy(section, {'': split, 'train': split}, targets=targets,
             loss=functools.partial(losses.mean_error, kind='mse'))


@pytest.fixture
def split(toy):
  return toy.split(ANSWERS, LABELS, num_classes=2, **FACTS)


def test_errors_agree_with_scikit_learn_in_the_units_of_the_labels(toy, split):
  result = build(toy, {'name': 'regression'}, split)(toy.params)
  found = result.metrics
  assert found['examples'] == 10 and result.class_names == FACTS['targets']
  for column, (name, mean, std) in enumerate(zip(
      FACTS['targets'], FACTS['target_mean'], FACTS['target_std'])):
    np.testing.assert_allclose(
        result.tables['predictions'][:, column], mean + std * np.stack(
            [LABELS[:, column], ANSWERS[:, column]], -1), rtol=1e-6)
    known = ~np.isnan(LABELS[:, column])
    pair = (std * LABELS[known, column].astype(np.float64),
            std * ANSWERS[known, column].astype(np.float64))
    want = {
        'mean_absolute_error': sklearn_metrics.mean_absolute_error(*pair),
        'root_mean_square_error': np.sqrt(
            sklearn_metrics.mean_squared_error(*pair)),
        'r2': sklearn_metrics.r2_score(*pair)}
    for metric, value in want.items():
      np.testing.assert_allclose(found[f'{metric}_{name}'], value, rtol=1e-6)
  for metric in want:
    assert found[metric] == pytest.approx(
        np.mean([found[f'{metric}_{name}'] for name in FACTS['targets']]))
  squares = np.square(ANSWERS - LABELS)
  np.testing.assert_allclose(
      found['loss'], np.nanmean(squares), rtol=1e-5)


def test_a_nan_prediction_gives_nan_metrics(toy, split):
  answers = ANSWERS.copy()
  answers[0, 0] = np.nan
  broken = toy.split(answers, LABELS, num_classes=2, **FACTS)
  found = build(toy, {'name': 'regression'}, broken)(toy.params).metrics
  assert np.isnan(found['mean_absolute_error_age']) and np.isnan(found['r2'])
  assert np.isfinite(found['r2_mass'])
