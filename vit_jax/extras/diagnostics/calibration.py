"""Expected calibration error (arXiv 1706.04599).

The confidence of a prediction is its probability, by softmax, or by sigmoid if
the model was trained with one. Examples fall into M bins of equal
width by their confidence:

  bin_m = ((m - 1) / M, m / M]
  error = sum_m |bin_m| / n |accuracy_m - confidence_m|
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Float64
import numpy as np

from vit_jax import fields
from vit_jax import metrics
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class CalibrationConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'calibration'`.

  Attributes:
    bins: number of confidence bins; 15 as in the paper.
  """
  name: Literal['calibration'] = 'calibration'
  bins: int = 15

  def __post_init__(self):
    fields.check_range(self, 'bins', low=1)

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return (
        evaluator.Metric(
            'calibration_error', 'Calibration error', 'min', is_fraction=True),
        evaluator.Metric(
            'calibration_error_max', mode='min', is_fraction=True),
        evaluator.Metric('brier', mode='min'), metrics.LOSS)

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    split = context.open(self)
    context.check_classes(split)
    activation = getattr(jax.nn, context.activation)

    def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
      logits = context.predict(params, batch)['logits'].astype(jnp.float32)
      labels, khot = batch['label'], split.k_hot(batch['label'])
      probabilities = activation(logits)
      return {'confidence': probabilities.max(axis=-1),
              'correct': metrics.precision_at_1(logits, khot) > 0,
              'brier': jnp.square(probabilities - khot).sum(axis=-1),
              'loss': context.loss(logits, labels)}

    def finish(values: passes.Values) -> evaluator.Result:
      table = reliability(
          values['confidence'], values['correct'], bins=self.bins)
      count, confidence, accuracy = table[table[:, 0] > 0].T
      gaps = np.abs(accuracy - confidence)
      return evaluator.Result(
          {'calibration_error': float(gaps @ count / count.sum()),
           'calibration_error_max': float(gaps.max()),
           'brier': float(values['brier'].mean(dtype=np.float64)),
           'loss': float(values['loss'].mean(dtype=np.float64)),
           'examples': int(count.sum())},
          {'reliability': table})

    return passes.gather(split, batch_values, finish)


def reliability(
    confidence: Float[np.ndarray, 'examples'],
    correct: Bool[np.ndarray, 'examples'], *, bins: int,
) -> Float64[np.ndarray, 'bins count_confidence_accuracy']:
  """Returns the example count, mean confidence and accuracy of each bin.

  The last two are NaN for empty bins.

  Raises:
    UserError: if a confidence is NaN.
  """
  if np.isnan(confidence).any():
    raise UserError(
        f'{int(np.isnan(confidence).sum())} of {len(confidence)} confidences '
        'are NaN.')
  # Bins are open below and closed above; 0 belongs to the first one.
  edges = np.linspace(0, 1, bins + 1)
  index = np.clip(np.searchsorted(edges, confidence, side='left') - 1,
                  0, bins - 1)
  count, confidence_sum, correct_sum = (
      np.bincount(index, weights=weights, minlength=bins) for weights in
      (None, confidence.astype(np.float64), correct.astype(np.float64)))
  with np.errstate(invalid='ignore'):
    return np.stack(
        [count, confidence_sum / count, correct_sum / count], axis=-1)
