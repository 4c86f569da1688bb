"""Curves and thresholds, compared with scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from vit_jax import evals
from vit_jax.extras.diagnostics import roc

RNG = np.random.default_rng(0)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def khot(count=200, classes=3):
  labels = RNG.random((count, classes)) < (0.5, 0.2, 0.1)[:classes]
  return labels, (1.5 * RNG.normal(size=labels.shape) + labels).astype(
      np.float32)


def evaluate(toy, labels, logits, **facts):
  return toy({'name': 'roc'}, toy.split(
      logits, labels.astype(np.float32), **facts),
             activation='sigmoid')(toy.params)


def test_metrics_of_several_labels_are_those_of_scikit_learn(toy):
  labels, logits = khot()
  result = evaluate(toy, labels, logits, class_names=tuple('abc'))
  thresholds = [result.metrics[f'threshold_{name}'] for name in 'abc']
  guess = sigmoid(logits) >= np.array(thresholds) - 1e-6
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


@pytest.mark.parametrize('sensitivity', [None, 0.8, 1.0])
def test_thresholds_are_the_best_on_another_split(toy, sensitivity):
  (labels, logits), (others, chosen_on) = khot(), khot()
  result = toy(
      {'name': 'roc', 'threshold_split': 'val', 'sensitivity': sensitivity}, {
          '': toy.split(logits, labels.astype(np.float32)),
          'val': toy.split(chosen_on, others.astype(np.float32))},
      activation='sigmoid')(toy.params)
  scores = sigmoid(chosen_on)
  for i in range(3):
    threshold = result.metrics[f'threshold_{i}']
    label, score = others[:, i], scores[:, i]

    def rates(candidate, label=label, score=score):
      hit = score >= candidate - 1e-6
      return hit[label].mean(), hit[~label].mean()

    if sensitivity is None:
      assert np.subtract(*rates(threshold)) == pytest.approx(
          max(np.subtract(*rates(candidate)) for candidate in score))
    else:
      best = max(c for c in score if rates(c)[0] >= sensitivity)
      lower = max(score[score < best - 1e-6], default=0)
      # Between two scores, where rounding errors of neither matter.
      assert threshold == pytest.approx((best + lower) / 2, rel=1e-5)
    assert result.tables['class_sensitivity'][i] == pytest.approx(
        (sigmoid(logits[:, i]) >= threshold)[labels[:, i]].mean())


@pytest.mark.parametrize(('positive', 'column'), [('', 1), ('ill', 0)])
def test_two_classes_have_one_positive_class(toy, positive, column):
  labels = RNG.integers(0, 2, 60)
  logits = RNG.normal(size=(60, 2)).astype(np.float32)
  result = toy(
      {'name': 'roc', 'positive': positive},
      toy.split(logits, labels, class_names=('ill', 'well')))(toy.params)
  scores = logits[:, column] - logits[:, 1 - column]
  assert result.metrics['roc_auc'] == pytest.approx(
      metrics.roc_auc_score(labels == column, scores), rel=1e-5)
  assert result.class_names == (('ill', 'well')[column],)
  _, rows = result.printed
  assert [row[0] for row in rows] == [*result.class_names]


def test_a_class_without_examples_is_left_out(toy):
  labels, logits = khot()
  labels[:, 1] = False
  result = evaluate(toy, labels, logits, class_names=tuple('abc'))
  assert result.metrics['roc_auc'] == pytest.approx(metrics.roc_auc_score(
      labels[:, [0, 2]], logits[:, [0, 2]], average='macro'), rel=1e-5)
  assert np.trapezoid(
      result.tables['roc'][0, 0], dx=1 / (roc.POINTS - 1)) == pytest.approx(
          metrics.roc_auc_score(labels[:, 0], logits[:, 0]), abs=0.01)
  assert np.isnan(result.tables['roc'][1]).all()


@pytest.mark.parametrize(('section', 'classes', 'words'), [
    ({'sensitivity': 1.1}, 2, 'above 0 and at most 1'),
    ({'positive': 'il'}, 2, "positive.*Did you mean 'ill'"),
    ({}, 101, 'curves of up to 100 classes, but toy test has 101')])
def test_unsuitable_settings_are_errors(toy, section, classes, words):
  names = ('ill', 'well', *map(str, range(classes - 2)))
  split = toy.split(np.zeros((4, classes)), np.zeros(4, int), class_names=names)
  with pytest.raises(ValueError, match=words):
    toy({'name': 'roc', **section}, split)


def test_keys_that_ended_are_ignored_in_saved_configs():
  section, = evals.parse({'x': {
      'name': 'roc', 'samples': 1000, 'confidence': 0.95}}).values()
  assert section == roc.RocConfig()
