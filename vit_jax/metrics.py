"""Metrics: a value per example, and the mean that merges by sum and count.

A mean over a data set is the merged mean of its batches, however these are cut
and padded: only sums and counts are kept until the last moment.
"""

from typing import Any

import clu.metrics
import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Real, Shaped
import numpy as np

# Class indices, or the k-hot or soft labels of every class.
Labels = Integer[Array, 'batch'] | Real[Array, 'batch classes']


@flax.struct.dataclass
class Mean(clu.metrics.Average):
  """The mean of a value per example over the real examples.

  Attributes:
    total: sum of the values in float32, whatever their type; exact for counts
      of correct answers up to 2 ** 24 = 16.8 M between two computations.
    count: number of real examples, int32.
  """
  # Any, for a pytree may also hold the arrays' shapes or shardings.
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
      mask: 0 for padding, whose values are not looked at, NaN or not; a NaN of
        a real example is kept and shows. All are real where not given.
    """
    average = super().from_model_output(values.astype(jnp.float32), mask)
    return cls(total=average.total, count=average.count)

  def compute(self) -> Any:
    """Returns the mean, or NaN if no real example was seen.

    NaN says "not measured"; 0 would pass for a perfect loss.
    """
    return self.total / self.count


def top_k_correct(
    logits: Float[Array, 'batch classes'], labels: Labels, *, k: int = 1,
) -> Float[Array, 'batch']:
  """Returns 1 where the label is among the k highest logits, else 0.

  Of equal logits the lower class index comes first, as in `argmax`: logits
  that are all the same, as a head initialised with zeros gives, are right by
  chance, not always. A row with a NaN is wrong.

  Args:
    logits: of any floating type.
    labels: class indices, or soft labels, of which the first highest counts.
      For labels with several true classes see `precision_at_1`.
    k: how many answers a model may give.

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
  # Counts the answers before the label. To sort, a compiler may gather a batch
  # that is split over devices.
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
  """Returns 1 where the highest logit is of a true class, else 0.

  With the re-assessed labels of arXiv:2006.07159 this is "ReaL accuracy" over
  the examples that have a label. An example without a true class is wrong:
  mask it where it should not count. A row with a NaN is wrong.

  Args:
    logits: of any floating type; ties as in `top_k_correct`.
    khot_labels: above 0 for the true classes.
  """
  answer = logits.argmax(axis=-1)[:, None]
  correct = jnp.take_along_axis(khot_labels, answer, axis=-1)[:, 0] > 0
  return (correct & ~jnp.isnan(logits).any(axis=-1)).astype(jnp.float32)


def average_precision(
    scores: Real[np.ndarray, 'examples'], labels: Bool[np.ndarray, 'examples'],
) -> float:
  """Returns the area under precision over recall of one class, on the host.

    sum_n (recall_n - recall_n-1) precision_n

  over the thresholds n, the different scores from the highest down: examples of
  equal scores are answers at once. No interpolation, as in scikit-learn. It is
  the mean, over the true examples, of the precision at their own score.

  Returns:
    NaN where no example is of the class, or a score is NaN.
  """
  if not labels.any() or np.isnan(scores).any():
    return float('nan')
  every, true = np.sort(scores), np.sort(scores[labels])
  answers = len(every) - np.searchsorted(every, true, side='left')
  hits = len(true) - np.searchsorted(true, true, side='left')
  return float((hits / answers).mean())


def errors(
    predictions: Real[np.ndarray, 'examples targets'],
    labels: Real[np.ndarray, 'examples targets'],
) -> dict[str, Float[np.ndarray, 'targets']]:
  """Returns how far off predictions of numbers are, on the host in float64.

    mean_absolute_error     mean |prediction - label|
    root_mean_square_error  sqrt(mean (prediction - label)^2)
    r2                      1 - sum (prediction - label)^2
                                / sum (label - mean of labels)^2

  r2 is the coefficient of determination: 1 is perfect, 0 as good as the mean of
  these very labels, and there is no lower bound; as in scikit-learn.

  Args:
    predictions: in the labels' units.
    labels: NaN where one is not known; it is left out.

  Returns:
    Each for each target: NaN where no label is known, or a prediction is NaN,
    and r2 also where all labels are the same.
  """
  result: dict[str, list[float]] = {
      'mean_absolute_error': [], 'root_mean_square_error': [], 'r2': []}
  for prediction, label in zip(predictions.T, labels.T):
    known = ~np.isnan(label)
    label = label[known].astype(np.float64)
    error = prediction[known].astype(np.float64) - label
    with np.errstate(divide='ignore', invalid='ignore'):
      count = np.float64(len(label))
      squares = np.square(error).sum()
      spread = np.square(label - label.sum() / count).sum()
      result['mean_absolute_error'].append(np.abs(error).sum() / count)
      result['root_mean_square_error'].append(np.sqrt(squares / count))
      result['r2'].append(1 - squares / spread if spread else np.nan)
  return {name: np.array(values) for name, values in result.items()}
