"""Features of every image of a split, for few-shot and k-NN evaluation."""

from collections.abc import Callable
import dataclasses
from typing import ClassVar

from jaxtyping import Float, Real
import numpy as np

from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.exceptions import UserError

# Reported by `spread`.
SPREAD = (evaluator.Metric('feature_rank', 'Feature rank'),
          evaluator.Metric('feature_std'))
# Below these, features are reported as collapsed.
_MIN_RANK, _MIN_STD = 2.0, 0.01


@dataclasses.dataclass(frozen=True)
class FeatureEvaluatorConfig(evaluator.EvaluatorConfig):
  """Fields of every evaluator of features.

  Attributes:
    feature: layer of the features: 'representation', the input of the head;
      'pooled', before the tanh layer of pre-training; 'cls', the class token;
      'mean', the mean over the patches; 'logits'. 'mean:6' is that after layer
      6.
  """
  feature: str = 'representation'

  uses_head: ClassVar[bool] = False

  @property
  def reads_head(self) -> bool:
    return self.feature == 'logits'


@dataclasses.dataclass(frozen=True)
class Features:
  """Features and labels of a split, in its order, on the host."""
  values: Float[np.ndarray, 'examples width']
  # Indices of classes; targets and k-hot labels have a second axis.
  labels: Real[np.ndarray, 'examples *_']


def extract(
    context: evaluator.Context, split: evaluator.Split, feature: str, *,
    test: evaluator.Split | None = None, labelled: bool = True,
) -> Callable[[types.Params, evaluator.OnBatch], Features]:
  """Returns a function that gathers the features of a split on every host.

  Raises a `UserError` for unsuitable labels, unless `labelled` is False, or
  classes that `test` lacks.
  """
  if labelled:
    context.check_classes(split, single=True)
  dataset = split.dataset
  if test is not None and dataset.num_classes != test.dataset.num_classes:
    raise UserError(
        f'{context.where}: {dataset.title} has {dataset.num_classes} classes, '
        f'but {test.dataset.title} has {test.dataset.num_classes}.')

  def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
    value = context.features(params, batch, feature, f'{context.where}.feature')
    return {'value': value, 'label': batch['label']}

  def finish(values: passes.Values) -> Features:
    if not np.isfinite(values['value']).all():
      raise UserError(
          f'{context.where}: the {feature} of an image of {dataset.title} is '
          'NaN or infinite.')
    return Features(values['value'], values['label'])

  return passes.gather(split, batch_values, finish)


def spread(values: Float[np.ndarray, 'examples width']) -> dict[str, float]:
  """Returns indicators of collapse, which self-supervision must avoid.

  `feature_rank` is the effective number of dimensions, 1 ... width: exp(-sum_k
  p_k log p_k) with the singular values p_k of the centred features, scaled to
  sum 1 (RankMe, arXiv 2210.02885, section 3, there without centring).
  `feature_std` is the mean deviation of the features of length 1, times
  sqrt(width): 1 if spread over the sphere, 0 if constant (SimSiam, arXiv
  2011.10566, section 4.1). At most 20,000 examples are used.
  """
  values = values[::-(-len(values) // 20_000)].astype(np.float64)
  lengths = np.linalg.norm(values, axis=1, keepdims=True)
  std = (values / np.maximum(lengths, 1e-12)).std(axis=0).mean()
  centred = values - values.mean(axis=0)
  singular = np.sqrt(np.linalg.eigvalsh(centred.T @ centred).clip(0))
  share = singular / max(singular.sum(), 1e-12)
  entropy = -(share * np.log(np.maximum(share, 1e-12))).sum()
  return {'feature_rank': float(np.exp(entropy)),
          'feature_std': float(std * values.shape[1]**0.5)}


def checked_spread(
    context: evaluator.Context, values: Float[np.ndarray, 'examples width'],
) -> dict[str, float]:
  """Returns `spread`; notes a collapse."""
  found = spread(values)
  if found['feature_rank'] < _MIN_RANK or found['feature_std'] < _MIN_STD:
    context.note(
        f'warning: {context.where}: the features have collapsed: rank '
        f'{found["feature_rank"]:.3g} of {values.shape[1]}, standard deviation '
        f'{found["feature_std"]:.2f} (1 if spread)')
  return found
