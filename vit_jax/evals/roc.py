"""ROC and precision-recall curves of two classes, or of each of several labels.

Metrics are those of a class against the rest: the area under the ROC curve,
average precision and, at a threshold, F1, sensitivity (recall) and specificity.
Those of several classes are unweighted means. Confidence intervals are
percentiles over samples of the examples with replacement (bootstrap).
"""

from collections.abc import Callable
import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float
import numpy as np
from sklearn import metrics as sklearn_metrics

from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes

METRICS = ('roc_auc', 'average_precision', 'f1', 'sensitivity', 'specificity')
MAX_CLASSES = 100
POINTS = 201  # Of a curve.

Labels = Bool[np.ndarray, 'examples classes']
Scores = Float[np.ndarray, 'examples classes']


@dataclasses.dataclass(frozen=True)
class RocConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'roc'`.

  Attributes:
    positive: name of the positive one of two classes; '' is the second. Ignored
      for more classes.
    threshold_split: split on which the threshold of each class maximises F1,
      such as 'validation'; must not overlap with `split`. None is a
      probability of 0.5.
    samples: number of bootstrap samples; 0 leaves out the intervals.
    confidence: coverage of the intervals.
  """
  name: Literal['roc'] = 'roc'
  positive: str = ''
  threshold_split: str | None = None
  samples: int = 1000
  confidence: float = 0.95

  fit_field: ClassVar[str] = 'threshold_split'

  def __post_init__(self):
    schema.check_range(self, 'samples')
    schema.check_range(self, 'confidence', above=0, end=1)

  def metrics(self) -> dict[str, evaluator.Mode]:
    return dict.fromkeys(METRICS, 'max')

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    test = context.open(self)
    context.check_classes(test)
    if test.num_classes > MAX_CLASSES:
      raise ValueError(
          f'{context.where} draws curves of up to {MAX_CLASSES} classes, but '
          f'{test.name} has {test.num_classes:,}. Use multi_label.')
    names = test.class_names or tuple(map(str, range(test.num_classes)))
    columns = list(range(test.num_classes))
    if not test.multi_label and test.num_classes == 2:
      if self.positive:
        schema.check_name(
            self.positive, list(names), what=f'{context.where}.positive')
      columns = [names.index(self.positive) if self.positive else 1]
    names = tuple(names[i] for i in columns)
    of_test = _gather(context, test, columns)
    of_threshold = None if self.threshold_split is None else _gather(
        context, context.open(dataclasses.replace(
            self, split=self.threshold_split)), columns)

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      thresholds = np.full(len(columns), 0.5) if of_threshold is None else (
          best_thresholds(*of_threshold(params, on_batch)))
      labels, scores = of_test(params, on_batch)
      by_class = measure(labels, scores, thresholds)
      intervals = self._intervals(labels, scores, thresholds, on_batch)
      found = {}
      for i, (name, mean) in enumerate(zip(METRICS, _mean(by_class))):
        found[name] = mean
        if self.samples:
          found[f'{name}_low'], found[f'{name}_high'] = intervals[i]
      found |= {'threshold' + f'_{name}' * (len(names) > 1): value
                for name, value in zip(names, thresholds)}
      return evaluator.Result(
          {**{name: float(value) for name, value in found.items()},
           'examples': len(labels)},
          {'roc': curves(labels, scores), **{
              f'class_{name}': values
              for name, values in zip(METRICS, by_class)}}, names)

    return run

  def _intervals(
      self, labels: Labels, scores: Scores,
      thresholds: Float[np.ndarray, 'classes'], on_batch: evaluator.OnBatch,
  ) -> Float[np.ndarray, 'metrics 2']:
    rng, means = np.random.default_rng(0), []
    for _ in range(self.samples):
      rows = rng.integers(len(labels), size=len(labels))
      means.append(_mean(measure(labels[rows], scores[rows], thresholds)))
      on_batch()
    tail = 50 * (1 - self.confidence)
    return np.nanpercentile(
        means, (tail, 100 - tail), axis=0).T if means else np.empty((0, 2))


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
      raise ValueError(
          f'{context.where}: logits of {split.name} are NaN or infinite.')
    return values['label'], values['score']

  return passes.gather(split, batch_values, finish)


def measure(
    labels: Labels, scores: Scores, thresholds: Float[np.ndarray, 'classes'],
) -> Float[np.ndarray, 'metrics classes']:
  """Returns METRICS of each class; NaN where all or no examples have it."""
  predicted = scores >= thresholds
  hits, found, positive = (
      x.sum(axis=0) for x in (labels & predicted, predicted, labels))
  negative = len(labels) - positive
  valid = (positive > 0) & (negative > 0)
  ranked = np.full((2, labels.shape[1]), np.nan)
  for i in np.flatnonzero(valid):
    ranked[:, i] = [function(labels[:, i], scores[:, i]) for function in (
        sklearn_metrics.roc_auc_score, sklearn_metrics.average_precision_score)]
  with np.errstate(invalid='ignore', divide='ignore'):
    return np.where(valid, np.stack([
        *ranked, 2 * hits / (positive + found), hits / positive,
        1 - (found - hits) / negative]), np.nan)


def _mean(
    by_class: Float[np.ndarray, 'metrics classes'],
) -> Float[np.ndarray, 'metrics']:
  counted = ~np.isnan(by_class[0])
  return by_class[:, counted].mean(axis=1) if counted.any() else (
      np.full(len(by_class), np.nan))


def best_thresholds(
    labels: Labels, scores: Scores) -> Float[np.ndarray, 'classes']:
  """Returns each class's threshold of highest F1; 0.5 without examples."""
  thresholds = np.full(labels.shape[1], 0.5)
  for i in np.flatnonzero(labels.any(axis=0)):
    precision, recall, candidates = sklearn_metrics.precision_recall_curve(
        labels[:, i], scores[:, i])
    total = np.maximum(precision + recall, 1e-12)
    thresholds[i] = candidates[np.argmax((precision * recall / total)[:-1])]
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
  for i in np.flatnonzero(labels.any(axis=0) & ~labels.all(axis=0)):
    false, true, _ = sklearn_metrics.roc_curve(labels[:, i], scores[:, i])
    precision, recall, _ = sklearn_metrics.precision_recall_curve(
        labels[:, i], scores[:, i])
    found[i] = (np.interp(x, false, true),
                np.interp(x, recall[::-1], precision[::-1]))
  return found
