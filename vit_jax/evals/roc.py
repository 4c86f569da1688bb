"""ROC and precision-recall curves of two classes, or of each of several labels.

Metrics are those of a class against the rest: the area under the ROC curve,
average precision and, at a threshold, F1, sensitivity (recall) and specificity.
Those of several classes are unweighted means. Confidence intervals are
percentiles over samples of the examples with replacement (bootstrap).
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Shaped
import numpy as np
from sklearn import metrics as sklearn_metrics

from vit_jax import fields
from vit_jax import metrics as metrics_lib
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes

_METRICS = (
    evaluator.Metric('roc_auc', 'ROC AUC'),
    evaluator.Metric('average_precision'),
    *(evaluator.Metric(name, is_fraction=True)
      for name in ('f1', 'sensitivity', 'specificity')))
METRICS = metrics_lib.names(_METRICS)
MAX_CLASSES = 100
POINTS = 201  # Of a curve.
MAX_DRAWS = 1_000_000  # Examples of samples that are measured at a time.

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
    fields.check_range(self, 'samples')
    fields.check_range(self, 'confidence', above=0, end=1)

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
      raise ValueError(
          f'{context.where} draws curves of up to {MAX_CLASSES} classes, but '
          f'{dataset.title} has {dataset.num_classes:,}. Use multi_label.')
    names = dataset.class_names or tuple(map(str, range(dataset.num_classes)))
    columns = list(range(dataset.num_classes))
    if not dataset.multi_label and dataset.num_classes == 2:
      if self.positive:
        schema.check_name(
            self.positive, list(names), what=f'{context.where}.positive')
      columns = [self._positive(names)]
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
      by_class = measure(
          labels, scores, thresholds, np.ones((1, len(labels))))[0]
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
    rng = np.random.default_rng(0)
    means: list[np.ndarray] = []
    for count in _groups(self.samples, len(labels)):
      draws = rng.integers(len(labels), size=(count, len(labels)))
      means.extend(_mean(measure(labels, scores, thresholds, np.stack([
          np.bincount(rows, minlength=len(labels)) for rows in draws]))))
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
          f'{context.where}: logits of {split.dataset.title} are NaN or '
          'infinite.')
    return values['label'], values['score']

  return passes.gather(split, batch_values, finish)


def _groups(samples: int, examples: int) -> list[int]:
  """Returns the sizes of groups of samples, which limit memory."""
  size = max(1, MAX_DRAWS // examples)
  return [min(size, samples - i) for i in range(0, samples, size)]


def measure(
    labels: Labels, scores: Scores, thresholds: Float[np.ndarray, 'classes'],
    counts: Shaped[np.ndarray, 'samples examples'],
) -> Float[np.ndarray, 'samples metrics classes']:
  """Returns METRICS of each class in samples of the examples.

  `counts` says how often a sample contains each example. NaN where all or no
  examples of a sample have the class.
  """
  counts = counts.astype(np.float64)  # Products of integers are slow.
  predicted = scores >= thresholds
  hits, found, positive = (
      counts @ x for x in (labels & predicted, predicted, labels))
  negative = counts.sum(axis=1, keepdims=True) - positive
  ranked = np.stack([_rank(labels[:, i], scores[:, i], counts)
                     for i in range(labels.shape[1])], axis=-1)
  with np.errstate(invalid='ignore', divide='ignore'):
    return np.where(((positive > 0) & (negative > 0))[:, None], np.stack([
        ranked[:, 0] / (positive * negative), ranked[:, 1] / positive,
        2 * hits / (positive + found), hits / positive,
        1 - (found - hits) / negative], axis=1), np.nan)


def _rank(
    labels: Bool[np.ndarray, 'examples'], scores: Float[np.ndarray, 'examples'],
    counts: Float[np.ndarray, 'samples examples'],
) -> Float[np.ndarray, 'samples 2']:
  """Returns the areas under curves of counts: true over false positives, and
  precision over true positives.
  """
  order = np.argsort(-scores)
  # A threshold does not separate equal scores.
  last = np.flatnonzero(np.diff(scores[order], append=np.inf))
  true, false = (np.pad(
      np.cumsum((counts * kind)[:, order], axis=1)[:, last], [(0, 0), (1, 0)])
                 for kind in (labels, ~labels))
  more = np.diff(true)
  precision = true[:, 1:] / np.maximum(true + false, 1)[:, 1:]
  return np.stack([
      np.sum(np.diff(false) * (true[:, 1:] - more / 2), axis=1),
      np.sum(more * precision, axis=1)], axis=1)


def _mean(
    by_class: Float[np.ndarray, '*samples metrics classes'],
) -> Float[np.ndarray, '*samples metrics']:
  """Returns means of the classes that are not NaN; NaN without any."""
  with np.errstate(invalid='ignore'):
    return np.nansum(by_class, -1) / np.sum(~np.isnan(by_class), -1)


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
