"""Metrics: values per example, and means stored as a sum and a count.

The mean over a dataset does not depend on batch size or padding. Objectives and
evaluators declare what they report as `Metric` records.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, Literal

import clu.metrics
import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Real, Shaped
import numpy as np

# Class indices, or k-hot or soft labels.
Labels = Integer[Array, 'batch'] | Real[Array, 'batch classes']
Mode = Literal['max', 'min']


@dataclasses.dataclass(frozen=True)
class Metric:
  """Declaration of a metric by the component that reports it.

  Attributes:
    name: its name, after that of the evaluator and a slash.
    title: heading of its curve. A metric without a title has no curve and is
      not in the final table of a run.
    mode: whether larger ('max') or smaller ('min') values are better.
    is_fraction: whether it is shown in percent.
  """
  name: str
  title: str = ''
  mode: Mode = 'max'
  is_fraction: bool = False


# Metrics of several objectives and evaluators.
LOSS = Metric('loss', 'Loss', 'min')
ACCURACY = Metric('accuracy', 'Accuracy', is_fraction=True)
PRECISION_AT_1 = Metric('precision_at_1', 'Precision at 1', is_fraction=True)
MEAN_AVERAGE_PRECISION = Metric(
    'mean_average_precision', 'Mean average precision', is_fraction=True)


def names(declared: Sequence[Metric]) -> tuple[str, ...]:
  """Returns the names of metrics."""
  return tuple(metric.name for metric in declared)


def find(key: str, declared: Mapping[str, Metric]) -> Metric:
  """Returns the record of a metric.

  A suffix, as of a class or a standard deviation ('f1_std'), changes neither
  title nor unit. A metric that nobody declares has no title.

  Args:
    key: 'evaluator/metric'.
    declared: records by 'evaluator/metric'; one of an unknown evaluator is
      that of the same name.
  """
  name = key.rpartition('/')[2]
  by_name = {one.name: one for one in reversed([*declared.values()])}
  for text, known in ((key, declared), (name, by_name)):
    found = [each for each in known if f'{text}_'.startswith(f'{each}_')]
    if found:
      return known[max(found, key=len)]
  return Metric(name)


@flax.struct.dataclass
class Mean(clu.metrics.Average):
  """Mean of per-example values, ignoring padding.

  Attributes:
    total: float32 sum; exact for counts of correct answers up to 2 ** 24.
    count: number of real examples, int32.
  """
  # Any: a pytree may also hold shapes or shardings.
  total: Any
  count: Any

  @classmethod
  def from_model_output(
      cls, values: Shaped[Array, 'batch'],
      mask: Shaped[Array, 'batch'] | None = None, **_: Any,
  ) -> 'Mean':
    """Returns the sum and count of a batch.

    Args:
      values: one per example.
      mask: 0 for padding, whose values are ignored even if NaN. All examples
        are real by default.
    """
    average = super().from_model_output(values.astype(jnp.float32), mask)
    return cls(total=average.total, count=average.count)


def top_k_correct(
    logits: Float[Array, 'batch classes'], labels: Labels, *, k: int = 1,
) -> Float[Array, 'batch']:
  """Returns 1 where the label is among the k highest logits, else 0.

  Ties go to the lower class index, as in `argmax`, so that a zero-initialised
  head has chance accuracy. Rows with NaN count as wrong.

  Args:
    logits: of any floating type.
    labels: class indices, or soft labels, whose argmax is used. See
      `precision_at_1` for several true classes.
    k: number of classes to consider.

  Raises:
    ValueError: if there are fewer than k classes.
  """
  classes = logits.shape[-1]
  if not 1 <= k <= classes:
    raise ValueError(
        f'Top-{k} accuracy needs k from 1 to the number of classes, which is '
        f'{classes}. Leave this metric out.')
  if labels.ndim == 2:
    labels = labels.argmax(axis=-1)
  # Counts the classes ranked before the label. A sort may gather a batch that
  # is sharded over devices.
  index = jnp.arange(classes)
  is_label = index == labels[:, None]
  own = jnp.where(is_label, logits, 0).sum(axis=-1, keepdims=True)
  before = (logits > own) | ((logits == own) & (index < labels[:, None]))
  correct = is_label.any(axis=-1) & (before.sum(axis=-1) < k)
  return (correct & ~jnp.isnan(logits).any(axis=-1)).astype(jnp.float32)


def precision_at_1(
    logits: Float[Array, 'batch classes'],
    khot_labels: Real[Array, 'batch classes'],
) -> Float[Array, 'batch']:
  """Returns 1 where the highest logit belongs to a true class, else 0.

  With the labels of arXiv:2006.07159 this is "ReaL accuracy" over examples with
  labels. Examples without a true class and rows with NaN count as wrong.

  Args:
    logits: of any floating type; ties as in `top_k_correct`.
    khot_labels: above 0 for the true classes.
  """
  answer = logits.argmax(axis=-1)[:, None]
  correct = jnp.take_along_axis(khot_labels, answer, axis=-1)[:, 0] > 0
  return (correct & ~jnp.isnan(logits).any(axis=-1)).astype(jnp.float32)


def errors(
    predictions: Real[np.ndarray, 'examples targets'],
    labels: Real[np.ndarray, 'examples targets'],
) -> dict[str, Float[np.ndarray, 'targets']]:
  """Returns regression errors, computed on the host in float64.

    mean_absolute_error     mean |prediction - label|
    root_mean_square_error  sqrt(mean (prediction - label)^2)
    r2                      1 - sum (prediction - label)^2
                                / sum (label - mean of labels)^2

  r2 is the coefficient of determination, as in scikit-learn: 1 is perfect, and
  0 equals predicting the mean of the labels.

  Args:
    predictions: in the units of the labels.
    labels: NaN for unknown labels, which are ignored.

  Returns:
    Errors per target: NaN without known labels or for NaN predictions, and r2
    also for constant labels.
  """
  known = ~np.isnan(labels)
  count = known.sum(axis=0)
  labels = np.where(known, labels, 0).astype(np.float64)
  # NaN predictions of known labels stay NaN.
  error = np.where(known, predictions.astype(np.float64) - labels, 0)
  with np.errstate(divide='ignore', invalid='ignore'):
    centred = np.where(known, labels - labels.sum(axis=0) / count, 0)
    squares, spread = (np.square(x).sum(axis=0) for x in (error, centred))
    return {'mean_absolute_error': np.abs(error).sum(axis=0) / count,
            'root_mean_square_error': np.sqrt(squares / count),
            'r2': np.where(spread > 0, 1 - squares / spread, np.nan)}
