"""What a model makes of every image of a split."""

from collections.abc import Callable
import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int
import numpy as np

from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import split_means

# `representation` is what the head gets; `pooled` is before the tanh layer of
# pre-training, where there is one; `tokens` is the mean over all tokens.
Feature = Literal['representation', 'pooled', 'tokens']


@dataclasses.dataclass(frozen=True)
class Features:
  """Of the examples of a split, in its order; on the host, 4 bytes a number."""
  values: Float[np.ndarray, 'examples width']
  labels: Int[np.ndarray, 'examples']


def extract(
    context: evaluator_lib.Context, split: evaluator_lib.Split, feature: Feature,
) -> Callable[[types.Params, evaluator_lib.Between], Features]:
  """Returns what brings the features of a split to every host.

  Raises:
    ValueError: if an image of the split has several labels, or numbers.
  """
  context.need_classes(split)
  if split.multi_label:
    raise ValueError(
        f'{context.where} needs one label per image, but {split.name} has '
        'several.')

  def values(
      params: types.Params, batch: types.Batch) -> dict[str, jax.Array]:
    value = context.predict(params, batch)[feature].astype(jnp.float32)
    if feature == 'tokens':
      value = value.mean(axis=1)
    return {'value': value, 'label': batch['label']}

  over = split_means.collect(split, values)

  def run(params: types.Params, between: evaluator_lib.Between) -> Features:
    found = over(params, between)
    if not np.isfinite(found['value']).all():
      raise ValueError(
          f'{context.where}: the {feature} of an image of {split.name} is NaN '
          'or infinite.')
    return Features(found['value'], found['label'])

  return run


def check_same_classes(
    context: evaluator_lib.Context, train: evaluator_lib.Split,
    test: evaluator_lib.Split) -> None:
  """Raises if two splits are not of one data set's classes."""
  if train.num_classes != test.num_classes:
    raise ValueError(
        f'{context.where}: {train.name} has {train.num_classes} classes, but '
        f'{test.name} has {test.num_classes}.')
