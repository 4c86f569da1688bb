"""Metrics of predictions, compared with scikit-learn, and common rules."""

import functools
from unittest import mock

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from tests import random_logits
from vit_jax import evals
from vit_jax import metrics
from vit_jax import registry

EXAMPLES = random_logits.EXAMPLES
CLASSES = random_logits.CLASSES
LABELS = random_logits.LABELS
LOGITS = random_logits.LOGITS
KHOT = random_logits.KHOT.copy()
KHOT[:, 2] = 0
KHOT[5] = 0  # An image without labels, which counts as wrong.


# One label.


def classify(toy, *, images=LOGITS, labels=LABELS, **split):
  return toy({'name': 'classification'}, toy.split(
      images, labels, **split))(toy.params).metrics


def test_metrics_are_means_over_the_examples(toy):
  logits = LOGITS.astype(np.float64)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  ranks = (logits > logits[np.arange(EXAMPLES), LABELS][:, None]).sum(-1)
  result = classify(toy)
  assert result == pytest.approx({
      'loss': -log_p[np.arange(EXAMPLES), LABELS].mean(),
      'accuracy': (ranks < 1).mean(), 'accuracy_top_5': (ranks < 5).mean(),
      'examples': EXAMPLES}, rel=1e-5)
  assert result['accuracy'] < result['accuracy_top_5'] < 1


@pytest.mark.parametrize(('size', 'garbage'), [
    (1, 0.0), (3, np.nan), (4, 1e30), (64, np.nan)])
def test_batch_size_and_padding_do_not_change_metrics(toy, size, garbage):
  assert classify(toy, size=size, garbage=garbage) == pytest.approx(
      classify(toy, size=5), rel=1e-5)


def test_up_to_5_classes_have_no_top_5_accuracy(toy):
  assert set(classify(toy, images=LOGITS[:, :5])) == {
      'loss', 'accuracy', 'examples'}


# Several labels.


def test_mean_average_precision_ignores_absent_classes(toy):
  got = toy({'name': 'multi_label'}, toy.split(LOGITS, KHOT))(toy.params)
  there = KHOT.any(0)
  assert got.metrics == {
      'mean_average_precision': pytest.approx(
          sklearn_metrics.average_precision_score(
              KHOT[:, there], LOGITS[:, there], average='macro')),
      'precision_at_1': pytest.approx(
          KHOT[np.arange(EXAMPLES), LOGITS.argmax(-1)].mean()),
      'loss': got.metrics['loss'], 'examples': EXAMPLES}
  assert classify(toy, labels=KHOT) == got.metrics
  assert np.isnan(got.tables['average_precision']).tolist() == [
      not t for t in there]


def test_nan_scores_give_a_nan_metric(toy):
  broken = LOGITS.copy()
  broken[4, 3] = np.nan
  got = toy({'name': 'multi_label'}, toy.split(broken, KHOT))(toy.params)
  assert np.isnan(got.metrics['mean_average_precision'])


# The objective.


def objective(params, batch, key, train):
  import jax
  assert train is False
  noise = jax.random.normal(key, batch['label'].shape)
  return batch['image'].sum(-1) * params['scale'], {'color_accuracy': noise}


def test_the_objective_has_the_same_keys_in_each_evaluation(toy):
  evaluator = toy({'name': 'objective'}, toy.split(LOGITS, LABELS),
                  objective=objective)
  first = evaluator(toy.params).metrics
  assert first == evaluator(toy.params).metrics
  assert first['loss'] == pytest.approx(LOGITS.sum(-1).mean(), rel=1e-4)
  assert first['examples'] == EXAMPLES
  # Each batch has its own key.
  other = toy({'name': 'objective'}, toy.split(LOGITS[:4], LABELS[:4]),
              objective=objective)(toy.params).metrics
  assert abs(first['color_accuracy'] - other['color_accuracy']) > 1e-3


# Rules for all evaluators.


# The other evaluators need other labels.
KINDS = [kind for kind in registry.available(registry.EVALUATORS)
         if kind not in ('regression', 'segmentation', 'segmentation_head')]


@functools.cache  # Several tests share a compiled evaluator.
def build(toy, name, **split):
  labels = KHOT if name == 'multi_label' else LABELS
  # Ranks of three samples of each class.
  ranks = np.tile(np.arange(EXAMPLES) // CLASSES, (3, 1))
  names = tuple('abcdef')
  examples = toy.split(LOGITS, labels, ranks=ranks, class_names=names, **split)
  return toy({'name': name},
             dict.fromkeys(('', 'all', 'train'), examples),
             objective=objective, class_names=names)


@pytest.mark.parametrize('name', KINDS)
def test_metrics_are_declared_with_their_modes(toy, name):
  section = evals.parse({'x': {'name': name}})['x']
  declared = {*metrics.names(section.metrics())} | (
      {'color_accuracy'} if section.reports_objective else set())
  reported = {m for m in build(toy, name)(toy.params).metrics
              if not m.endswith(('_std', 'examples'))
              and not m.startswith('threshold')}
  assert reported <= declared


@pytest.mark.parametrize('name', sorted(
    {*registry.available(registry.EVALUATORS)} - {'fewshot'}))
def test_the_default_metric_is_in_curves_and_tables(name):
  first, *_ = evals.parse({'x': {'name': name}})['x'].metrics()
  assert first.title


@pytest.mark.parametrize(('name', 'count'), [
    ('classification', EXAMPLES - 1), ('knn', EXAMPLES + 1)])
def test_lost_or_repeated_examples_are_errors(toy, name, count):
  with pytest.raises(RuntimeError, match='counted .* examples, but its'):
    build(toy, name, stored=(0,) * count)(toy.params)


@pytest.mark.parametrize('name', ['classification', 'multi_label', 'knn'])
def test_the_batch_callback_can_stop_an_evaluation(toy, name):
  on_batch = mock.Mock(side_effect=(None, None, KeyboardInterrupt))
  with pytest.raises(KeyboardInterrupt):
    build(toy, name)(toy.params, on_batch)
  assert on_batch.call_count == 3
