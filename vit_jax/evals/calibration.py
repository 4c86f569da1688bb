"""Whether a model is right as often as it says (arXiv 1706.04599).

Of an image, the confidence is the probability of the answer: of the softmax, or
of the answer's own sigmoid where that was trained. Examples fall into bins of
equal width by their confidence,

  bin_m = ((m - 1) / M, m / M]
  error = sum_m |bin_m| / n |right_m - confidence_m|

with the share of right answers and the mean confidence of each bin.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Float64
import numpy as np

from vit_jax import metrics
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import split_means

USES_HEAD = True


@dataclasses.dataclass(frozen=True)
class CalibrationConfig:
  """An entry of the section `evals`, for `name: 'calibration'`.

  Attributes:
    name: always 'calibration'.
    split: see `ClassificationConfig`, as for what follows.
    source: data set.
    every: how often during training.
    batch_size: global.
    bins: of equal width; 15 as in the paper.
  """
  name: Literal['calibration'] = 'calibration'
  split: str = ''
  source: str = ''
  every: schema.Duration | None = None
  batch_size: int | None = None
  bins: int = 15

  def __post_init__(self):
    if self.bins < 1:
      raise ValueError(f'bins must be at least 1, but are {self.bins}.')


def metrics_of(config: CalibrationConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics, and whether high or low is good."""
  del config
  return {'calibration_error': 'min', 'calibration_error_max': 'min',
          'brier': 'min', 'loss': 'min'}


def build(
    config: CalibrationConfig, context: evaluator_lib.Context,
) -> evaluator_lib.Measure:
  """Wires the evaluator."""
  split = context.open_for_head(
      config.split, config.source, batch_size=config.batch_size)
  activation = getattr(jax.nn, context.activation)

  def values(
      params: types.Params, batch: types.Batch) -> dict[str, jax.Array]:
    logits = context.predict(params, batch)['logits'].astype(jnp.float32)
    labels = batch['label']
    khot = labels if split.multi_label else jax.nn.one_hot(
        labels, split.num_classes)
    probabilities = activation(logits)
    return {'confidence': probabilities.max(axis=-1),
            'right': metrics.precision_at_1(logits, khot) > 0,
            'brier': jnp.square(probabilities - khot).sum(axis=-1),
            'loss': context.loss(logits, labels)}

  over = split_means.collect(split, values)

  def run(
      params: types.Params, between: evaluator_lib.Between,
  ) -> evaluator_lib.Measured:
    found = over(params, between)
    table = reliability(
        found['confidence'], found['right'], bins=config.bins)
    count, confidence, right = table.T
    filled = count > 0
    gaps = np.abs(right - confidence)[filled]
    return evaluator_lib.Measured(
        {'calibration_error': float(
            gaps @ count[filled] / len(found['right'])),
         'calibration_error_max': float(gaps.max()),
         'brier': float(found['brier'].astype(np.float64).mean()),
         'loss': float(found['loss'].astype(np.float64).mean()),
         'examples': len(found['right'])},
        {'reliability': table})

  return run


def reliability(
    confidence: Float[np.ndarray, 'examples'],
    right: Bool[np.ndarray, 'examples'], *, bins: int,
) -> Float64[np.ndarray, 'bins count_confidence_right']:
  """Returns of each bin its examples, mean confidence and share of right ones.

  The last two are NaN where a bin is empty.

  Raises:
    ValueError: if a confidence is NaN.
  """
  if np.isnan(confidence).any():
    raise ValueError(
        f'{int(np.isnan(confidence).sum())} of {len(confidence)} confidences '
        'are NaN.')
  # Bins are open below and closed above; 0 is in the first.
  edges = np.linspace(0, 1, bins + 1)
  number = np.clip(np.searchsorted(edges, confidence, side='left') - 1,
                   0, bins - 1)
  count, confident, correct = (
      np.bincount(number, weights=weights, minlength=bins) for weights in
      (None, confidence.astype(np.float64), right.astype(np.float64)))
  with np.errstate(invalid='ignore'):
    return np.stack([count, confident / count, correct / count], axis=-1)
