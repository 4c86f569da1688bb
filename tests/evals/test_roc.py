"""Curves, thresholds and intervals, compared with scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from vit_jax.evals import roc

RNG = np.random.default_rng(0)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def khot(count=200, classes=3):
  labels = RNG.random((count, classes)) < (0.5, 0.2, 0.1)[:classes]
  return labels, (1.5 * RNG.normal(size=labels.shape) + labels).astype(
      np.float32)


def test_metrics_of_several_labels_are_those_of_scikit_learn(toy):
  labels, logits = khot()
  result = toy({'name': 'roc', 'samples': 0}, toy.split(
      logits, labels.astype(np.float32), class_names=tuple('abc')),
               activation='sigmoid')(toy.params)
  guess = sigmoid(logits) >= 0.5
  for name, function, given in (
      ('roc_auc', metrics.roc_auc_score, logits),
      ('average_precision', metrics.average_precision_score, logits),
      ('f1', metrics.f1_score, guess),
      ('sensitivity', metrics.recall_score, guess)):
    assert result.metrics[name] == pytest.approx(
        function(labels, given, average='macro'), rel=1e-5)
  np.testing.assert_allclose(
      result.tables['class_specificity'],
      [metrics.recall_score(~labels[:, i], ~guess[:, i]) for i in range(3)])
  assert [result.metrics[f'threshold_{name}'] for name in 'abc'] == [0.5] * 3
  assert not [name for name in result.metrics if name.endswith('_low')]


def test_the_threshold_maximises_f1_on_another_split(toy):
  (labels, logits), (others, chosen_on) = khot(), khot()
  result = toy(
      {'name': 'roc', 'samples': 0, 'threshold_split': 'val'}, {
          '': toy.split(logits, labels.astype(np.float32)),
          'val': toy.split(chosen_on, others.astype(np.float32))},
      activation='sigmoid')(toy.params)
  scores = sigmoid(chosen_on)
  for i in range(3):
    threshold = result.metrics[f'threshold_{i}']
    best = max(metrics.f1_score(others[:, i], scores[:, i] >= candidate)
               for candidate in scores[:, i])
    assert metrics.f1_score(
        others[:, i], scores[:, i] >= threshold - 1e-6) == pytest.approx(best)
    assert result.tables['class_f1'][i] == pytest.approx(metrics.f1_score(
        labels[:, i], sigmoid(logits[:, i]) >= threshold))


@pytest.mark.parametrize(('positive', 'column'), [('', 1), ('ill', 0)])
def test_two_classes_have_one_positive_class(toy, positive, column):
  labels = RNG.integers(0, 2, 60)
  logits = RNG.normal(size=(60, 2)).astype(np.float32)
  result = toy(
      {'name': 'roc', 'positive': positive, 'samples': 200},
      toy.split(logits, labels, class_names=('ill', 'well')))(toy.params)
  scores = logits[:, column] - logits[:, 1 - column]
  found = metrics.roc_auc_score(labels == column, scores)
  assert result.metrics['roc_auc'] == pytest.approx(found, rel=1e-5)
  assert result.metrics['threshold'] == 0.5
  assert result.class_names == (('ill', 'well')[column],)
  assert result.metrics['roc_auc_low'] < found < result.metrics['roc_auc_high']


def test_samples_are_weights_of_examples_with_equal_scores():
  labels, scores = khot()
  scores = scores.round(1)
  counts = RNG.integers(0, 3, (4, len(labels)))
  found = roc.measure(labels, scores, np.zeros(3), counts)
  for row, weights in zip(found, counts):
    for i, function in enumerate((
        metrics.roc_auc_score, metrics.average_precision_score)):
      np.testing.assert_allclose(row[i], [
          function(labels[:, j], scores[:, j], sample_weight=weights)
          for j in range(3)], rtol=1e-6)


def test_intervals_cover_the_deviation_of_an_accuracy(toy):
  """Of n images with sensitivity p, it is sqrt(p (1 - p) / n)."""
  labels = np.repeat([0, 1], 400)
  logits = np.zeros((800, 2), np.float32)
  logits[400:720, 1] = 1  # 80 % of the second class.
  logits[:, 1] -= 0.5
  found = toy({'name': 'roc', 'samples': 2000}, toy.split(
      logits, labels))(toy.params).metrics
  width = (found['sensitivity_high'] - found['sensitivity_low']) / 2
  assert found['sensitivity'] == pytest.approx(0.8)
  assert width == pytest.approx(1.96 * np.sqrt(0.8 * 0.2 / 400), rel=0.1)


def test_classes_without_examples_are_left_out(toy):
  labels, logits = khot()
  labels[:, 1] = False
  result = toy({'name': 'roc', 'samples': 3}, toy.split(
      logits, labels.astype(np.float32), class_names=tuple('abc')),
               activation='sigmoid')(toy.params)
  assert result.metrics['roc_auc'] == pytest.approx(metrics.roc_auc_score(
      labels[:, [0, 2]], logits[:, [0, 2]], average='macro'), rel=1e-5)
  curve = result.tables['roc'][0, 0]
  assert np.trapezoid(curve, dx=1 / (roc.POINTS - 1)) == pytest.approx(
      metrics.roc_auc_score(labels[:, 0], logits[:, 0]), abs=0.01)
  assert np.isnan(result.tables['roc'][1]).all()


@pytest.mark.parametrize(('section', 'classes', 'words'), [
    ({'positive': 'il'}, 2, "positive.*Did you mean 'ill'"),
    ({}, 101, 'curves of up to 100 classes, but toy test has 101')])
def test_unsuitable_settings_are_errors(toy, section, classes, words):
  names = ('ill', 'well', *map(str, range(classes - 2)))
  split = toy.split(np.zeros((4, classes)), np.zeros(4, int), class_names=names)
  with pytest.raises(ValueError, match=words):
    toy({'name': 'roc', **section}, split)
