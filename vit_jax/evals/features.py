"""Features of every image of a split, for few-shot and k-NN evaluation."""

from collections.abc import Callable
import dataclasses
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Float, Int
import numpy as np

from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes

# `representation` is the input of the head, `pooled` precedes the tanh layer of
# pre-training, `tokens` is the mean over all tokens.
Feature = Literal['representation', 'pooled', 'tokens']


@dataclasses.dataclass(frozen=True)
class Features:
  """Features and labels of a split, in its order, on the host."""
  values: Float[np.ndarray, 'examples width']
  labels: Int[np.ndarray, 'examples']


def extract(
    context: evaluator.Context, split: evaluator.Split, feature: Feature, *,
    test: evaluator.Split | None = None,
) -> Callable[[types.Params, evaluator.OnBatch], Features]:
  """Returns a function that gathers the features of a split on every host.

  Raises a `ValueError` for unsuitable labels, or classes that `test` lacks.
  """
  context.check_classes(split, single=True)
  if test is not None and split.num_classes != test.num_classes:
    raise ValueError(
        f'{context.where}: {split.name} has {split.num_classes} classes, but '
        f'{test.name} has {test.num_classes}.')

  def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
    value = context.predict(params, batch)[feature].astype(jnp.float32)
    if feature == 'tokens':
      value = value.mean(axis=1)
    return {'value': value, 'label': batch['label']}

  def finish(values: passes.Values) -> Features:
    if not np.isfinite(values['value']).all():
      raise ValueError(
          f'{context.where}: the {feature} of an image of {split.name} is NaN '
          'or infinite.')
    return Features(values['value'], values['label'])

  return passes.gather(split, batch_values, finish)
