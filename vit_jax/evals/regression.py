"""How far off predicted numbers are, in the units of their labels."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import metrics
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import split_means

USES_HEAD = True


@dataclasses.dataclass(frozen=True)
class RegressionConfig:
  """An entry of the section `evals`, for `name: 'regression'`.

  `mean_absolute_error` and `root_mean_square_error` are in the labels' units,
  `r2` is the coefficient of determination, and `loss` the objective's, in
  standard deviations of the training split. Of several targets, each is given
  as well as their mean; where their units are unlike, choose by `r2` or `loss`.

  Attributes:
    name: always 'regression'.
    split: see `ClassificationConfig`, as for what follows.
    source: data set.
    every: how often during training.
    batch_size: global.
  """
  name: Literal['regression'] = 'regression'
  split: str = ''
  source: str = ''
  every: schema.Duration | None = None
  batch_size: int | None = None


def metrics_of(config: RegressionConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics to choose by, and whether high or low is good."""
  del config
  return {'root_mean_square_error': 'min', 'mean_absolute_error': 'min',
          'r2': 'max', 'loss': 'min'}


def build(
    config: RegressionConfig, context: evaluator_lib.Context,
) -> evaluator_lib.Measure:
  """Wires the evaluator.

  Raises:
    ValueError: if labels are classes.
  """
  split = context.open_as_trained(
      config.split, config.source, batch_size=config.batch_size)
  if not split.targets:
    raise ValueError(
        f'{context.where} measures predicted numbers, but the labels of '
        f'{split.name} are classes. Use '
        f'--config.{context.where}.name=classification.')

  def values(
      params: types.Params, batch: types.Batch) -> dict[str, jax.Array]:
    predictions = context.predict(params, batch)['logits'].astype(jnp.float32)
    labels = batch['label']
    return {'prediction': predictions, 'label': labels,
            'loss': context.loss(predictions, labels)}

  over = split_means.collect(split, values)

  def run(
      params: types.Params, between: evaluator_lib.Between,
  ) -> evaluator_lib.Measured:
    found = over(params, between)
    of_each = metrics.errors(found['prediction'], found['label'])
    for name in ('mean_absolute_error', 'root_mean_square_error'):
      # In float64, after the sums: what is added up is about 1.
      of_each[name] = of_each[name] * np.asarray(split.target_std)
    result = {'loss': float(found['loss'].astype(np.float64).mean())}
    for name, figures in of_each.items():
      result[name] = float(figures.mean())
      if len(split.targets) > 1:
        result |= {f'{name}_{target}': float(figure)
                   for target, figure in zip(split.targets, figures)}
    pairs = np.stack([found['label'], found['prediction']], axis=-1)
    return evaluator_lib.Measured(
        {**result, 'examples': len(found['loss'])},
        {'answers': pairs * np.asarray(split.target_std)[:, None]
                    + np.asarray(split.target_mean)[:, None]},
        split.targets)

  return run
