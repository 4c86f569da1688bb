"""Metrics of predictions, compared with scikit-learn, and common rules."""

import functools

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


# Several labels.


def test_mean_average_precision_ignores_absent_classes(toy):
  got = toy({'name': 'multi_label'}, toy.split(
      LOGITS, KHOT))(toy.params)
  there = KHOT.any(0)
  assert got.metrics == {
      'mean_average_precision': pytest.approx(
          sklearn_metrics.average_precision_score(
              KHOT[:, there], LOGITS[:, there], average='macro')),
      'precision_at_1': pytest.approx(
          KHOT[np.arange(EXAMPLES), LOGITS.argmax(-1)].mean()),
      'loss': got.metrics['loss'], 'examples': EXAMPLES}
  assert toy({'name': 'classification'}, toy.split(
      LOGITS, KHOT))(toy.params).metrics == got.metrics
  assert np.isnan(got.tables['average_precision']).tolist() == [
      not t for t in there]


def test_nan_scores_give_a_nan_metric(toy):
  broken = LOGITS.copy()
  broken[4, 3] = np.nan
  got = toy({'name': 'multi_label'}, toy.split(broken, KHOT))(toy.params)
  assert np.isnan(got.metrics['mean_average_precision'])


@pytest.mark.parametrize('name', ['fewshot', 'knn'])
def test_single_label_evaluators_refuse_multi_label_data(toy, name):
  with pytest.raises(ValueError, match='evals.test needs one label per image'):
    toy({'name': name}, dict.fromkeys(
        ('', 'train'), toy.split(LOGITS, KHOT)))


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


@pytest.mark.parametrize(('section', 'words'), [
    ({'name': 'fewshot', 'shots': [5, 5]}, 'shots must be different numbers'),
    ({'name': 'fewshot', 'shots': [-1]}, 'shots must be different numbers'),
    ({'name': 'fewshot', 'penalty': 0.0}, 'must be above 0'),
    ({'name': 'fewshot', 'classifiers': []}, 'classifiers is empty'),
    ({'name': 'knn', 'k': 0}, 'k must be at least 1'),
])
def test_wrong_settings_are_errors(section, words):
  with pytest.raises(ValueError, match=words):
    evals.parse({'val': section})


@pytest.mark.parametrize('name', ['train', 'a/b'])
def test_names_of_evaluators_are_not_ambiguous_in_those_of_metrics(name):
  with pytest.raises(ValueError, match=f'{name!r} cannot be the name of an ev'):
    evals.parse({name: {}})


# The other evaluators need other labels.
KINDS = [kind for kind in registry.available(registry.EVALUATORS)
         if kind not in ('regression', 'segmentation', 'segmentation_head')]


@functools.cache  # Several tests share a compiled evaluator.
def build(toy, name, **split):
  labels = KHOT if name == 'multi_label' else LABELS
  # Ranks of three samples of each class.
  ranks = np.tile(np.arange(EXAMPLES) // CLASSES, (3, 1))
  names = tuple('abcdef')
  examples = toy.split(
      LOGITS, labels, ranks=ranks, class_names=names, **split)
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


@pytest.mark.parametrize('name', ['classification', 'multi_label'])
def test_evaluators_of_the_head_need_its_classes(toy, name):
  split = toy.split(LOGITS, KHOT if name == 'multi_label' else LABELS)
  with pytest.raises(ValueError, match='6 without names'):
    toy({'name': name}, split, num_classes=7)


@pytest.mark.parametrize(('name', 'count'), [
    ('classification', EXAMPLES - 1), ('knn', EXAMPLES + 1)])
def test_lost_or_repeated_examples_are_errors(toy, name, count):
  with pytest.raises(RuntimeError, match='counted .* examples, but its'):
    build(toy, name, stored=(0,) * count)(toy.params)


@pytest.mark.parametrize('name', ['classification', 'multi_label', 'knn'])
def test_the_batch_callback_can_stop_an_evaluation(toy, name):
  calls = []

  def on_batch():
    calls.append(None)
    if len(calls) == 3:
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    build(toy, name)(toy.params, on_batch)
  assert len(calls) == 3


def test_classes_of_other_names_are_an_error(toy):
  names = 'abcdef'
  def evaluate(of_split):
    return toy({'name': 'classification'}, toy.split(
        LOGITS, LABELS, class_names=of_split), class_names=tuple(names))
  for same in (tuple(names), None):
    evaluate(same)
  with pytest.raises(ValueError, match='only here: x'):
    evaluate(tuple('abcdxf'))
