"""ROC and precision-recall curves of two classes, or of each of several labels.

Metrics compare one class with the rest: the area under the ROC curve, average
precision and, at a threshold, F1, sensitivity (recall) and specificity. Those
of several classes are unweighted means.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Integer
import numpy as np
from sklearn import metrics as sklearn_metrics

from vit_jax import console
from vit_jax import fields
from vit_jax import metrics as metrics_lib
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.exceptions import UserError

_METRICS = (
    evaluator.Metric('roc_auc', 'ROC AUC'),
    evaluator.Metric('average_precision'),
    *(evaluator.Metric(name, is_fraction=True)
      for name in ('f1', 'sensitivity', 'specificity')))
METRICS = metrics_lib.names(_METRICS)
MAX_CLASSES = 100
POINTS = 201  # Of a curve.
_MAX_LETTERS = 18  # Of a name, so that a row fits 80 columns.

Labels = Bool[np.ndarray, 'examples classes']
Scores = Float[np.ndarray, 'examples classes']


@dataclasses.dataclass(frozen=True)
class RocConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'roc'`.

  Attributes:
    positive: name of the positive one of two classes; '' is the second. Ignored
      for more classes.
    threshold_split: split on which the threshold of each class is chosen, such
      as 'validation', disjoint from `split`; None is `split` itself, which
      makes the metrics at the thresholds optimistic.
    sensitivity: smallest sensitivity on that split; the threshold is the
      highest that reaches it. None maximises sensitivity + specificity
      (Youden's index).
  """
  name: Literal['roc'] = 'roc'
  positive: str = ''
  threshold_split: str | None = None
  sensitivity: float | None = None

  fit_field: ClassVar[str] = 'threshold_split'
  ended: ClassVar[tuple[str, ...]] = ('samples', 'confidence')

  def __post_init__(self):
    fields.check_range(self, 'sensitivity', above=0, most=1)

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return _METRICS

  def thresholds(
      self, metrics: Mapping[str, float], names: Sequence[str],
  ) -> tuple[float, ...]:
    """Returns the threshold of each class from metrics of an evaluation.

    It is NaN for the negative one of two classes. Without thresholds, the
    result is ().
    """
    if 'threshold' in metrics:
      positive = self._positive(names)
      return tuple(metrics['threshold'] if i == positive else math.nan
                   for i in range(len(names)))
    return tuple(metrics[key] for name in names
                 if (key := f'threshold_{name}') in metrics)

  def _positive(self, names: Sequence[str]) -> int:
    return names.index(self.positive) if self.positive else len(names) - 1

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    test = context.open(self)
    context.check_classes(test)
    dataset = test.dataset
    if dataset.num_classes > MAX_CLASSES:
      raise UserError(
          f'{context.where} draws curves of up to {MAX_CLASSES} classes, but '
          f'{dataset.title} has {dataset.num_classes:,}. Use multi_label.')
    names = dataset.names_or_indices
    columns = list(range(dataset.num_classes))
    if not dataset.multi_label and dataset.num_classes == 2:
      if self.positive:
        schema.check_name(
            self.positive, list(names), what=f'{context.where}.positive')
      columns = [self._positive(names)]
    names = tuple(names[i] for i in columns)
    of_test = _gather(context, test, columns)
    if self.threshold_split is None:
      context.note(
          f'note: {context.where} chooses thresholds on the images that it '
          'measures, so sensitivity, specificity and F1 are optimistic. Use '
          f'another split: --config.{context.where}.threshold_split=SPLIT')
    of_threshold = None if self.threshold_split is None else _gather(
        context, context.open(dataclasses.replace(
            self, split=self.threshold_split)), columns)

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      labels, scores = of_test(params, on_batch)
      thresholds = choose_thresholds(*(
          of_threshold(params, on_batch) if of_threshold else (labels, scores)),
                                     sensitivity=self.sensitivity)
      by_class = measure(labels, scores, thresholds)
      result = {
          **dict(zip(METRICS, map(float, _mean(by_class)))),
          **{'threshold' + f'_{name}' * (len(names) > 1): float(value)
             for name, value in zip(names, thresholds)},
          'examples': len(labels)}
      tables = {
          'roc': curves(labels, scores), 'class_examples': labels.sum(axis=0),
          'class_threshold': thresholds, **{
              f'class_{name}': values
              for name, values in zip(METRICS, by_class)}}
      return evaluator.Result(
          result, tables, names, printed=rows(result, tables, names))

    return run


def _gather(
    context: evaluator.Context, split: evaluator.Split, columns: list[int],
) -> Callable[[types.Params, evaluator.OnBatch], tuple[Labels, Scores]]:
  """Returns a function that gathers labels and probabilities of a split."""
  activation = getattr(jax.nn, context.activation)

  def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
    logits, labels = context.predict(params, batch)['logits'], batch['label']
    columns_ = jnp.asarray(columns)
    return {'score': activation(logits.astype(jnp.float32))[:, columns_],
            'label': split.k_hot(labels)[:, columns_] > 0}

  def finish(values: passes.Values) -> tuple[Labels, Scores]:
    if not np.isfinite(values['score']).all():
      raise UserError(
          f'{context.where}: logits of {split.dataset.title} are NaN or '
          'infinite.')
    return values['label'], values['score']

  return passes.gather(split, batch_values, finish)


def measure(
    labels: Labels, scores: Scores, thresholds: Float[np.ndarray, 'classes'],
) -> Float[np.ndarray, 'metrics classes']:
  """Returns METRICS of each class; NaN where all or no examples have it."""
  found = np.full((len(METRICS), labels.shape[1]), np.nan)
  for i in _measurable(labels):
    label, predicted = labels[:, i], scores[:, i] >= thresholds[i]
    found[:, i] = (
        sklearn_metrics.roc_auc_score(label, scores[:, i]),
        sklearn_metrics.average_precision_score(label, scores[:, i]),
        sklearn_metrics.f1_score(label, predicted),
        sklearn_metrics.recall_score(label, predicted),
        sklearn_metrics.recall_score(~label, ~predicted))
  return found


def _measurable(labels: Labels) -> Integer[np.ndarray, '_']:
  """Returns the classes that some, but not all, examples have."""
  return np.flatnonzero(labels.any(axis=0) & ~labels.all(axis=0))


def _mean(
    by_class: Float[np.ndarray, 'metrics classes'],
) -> Float[np.ndarray, 'metrics']:
  """Returns means of the classes that are not NaN; NaN without any."""
  with np.errstate(invalid='ignore'):
    return np.nansum(by_class, -1) / np.sum(~np.isnan(by_class), -1)


def choose_thresholds(
    labels: Labels, scores: Scores, *, sensitivity: float | None = None,
) -> Float[np.ndarray, 'classes']:
  """Returns the threshold of each class; 0.5 where all or no examples have it.

  It is the highest that maximises sensitivity + specificity - 1 (Youden 1950)
  or reaches a `sensitivity`, midway to the next lower score: other batch sizes
  change scores by rounding.
  """
  thresholds = np.full(labels.shape[1], 0.5)
  for i in _measurable(labels):
    false, true, candidates = sklearn_metrics.roc_curve(
        labels[:, i], scores[:, i], drop_intermediate=False)
    value = true - false if sensitivity is None else true >= sensitivity
    # The first candidate is infinite, so that no example reaches it.
    best = 1 + np.argmax(value[1:])
    thresholds[i] = np.mean([*candidates.astype(float), 0.0][best:best + 2])
  return thresholds


def curves(
    labels: Labels, scores: Scores,
) -> Float[np.ndarray, 'classes 2 points']:
  """Returns the curves of each class at POINTS evenly spaced values of x.

  These are the true-positive rate by false-positive rate, and the precision by
  recall; NaN where all or no examples have a class.
  """
  x = np.linspace(0, 1, POINTS)
  found = np.full((labels.shape[1], 2, POINTS), np.nan)
  for i in _measurable(labels):
    false, true, _ = sklearn_metrics.roc_curve(labels[:, i], scores[:, i])
    precision, recall, _ = sklearn_metrics.precision_recall_curve(
        labels[:, i], scores[:, i])
    found[i] = (np.interp(x, false, true),
                np.interp(x, recall[::-1], precision[::-1]))
  return found


def rows(
    metrics: Mapping[str, float], tables: Mapping[str, np.ndarray],
    names: Sequence[str],
) -> evaluator.Printed:
  """Returns the headings of a table, and a row for each class and the mean."""
  values = np.array([[*tables[f'class_{name}'], metrics[name]]
                     for name in METRICS]).T.tolist()
  of_class = zip(tables['class_examples'].tolist(),
                 tables['class_threshold'].tolist())
  found: list[list[Any]] = []
  for name, (positive, threshold), row in zip(
      [*names, 'mean'], [*of_class, (None, None)], values):
    auc, precision, _, *fractions = (
        None if value != value else value for value in row)
    found.append([
        console.shorten(name, _MAX_LETTERS), positive, auc, precision,
        threshold, *(console.format_metric(value, is_fraction=True)
                     for value in fractions)])
  return ['class', 'positive', 'AUROC', 'AP', 'threshold', 'sens.', 'spec.'], (
      found if len(found) > 2 else found[:1])
