"""Errors of predicted numbers, in the units of their labels."""

import dataclasses
from typing import Literal

import jax.numpy as jnp
import numpy as np

from vit_jax import data
from vit_jax import metrics
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class RegressionConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'regression'`.

  `mean_absolute_error` and `root_mean_square_error` are in the units of the
  labels, `r2` is the coefficient of determination, and `loss` is in standard
  deviations of the training split. With several targets, each metric is
  reported per target and as their mean. Their units may differ, so that `r2` is
  then the default to select models by.
  """
  name: Literal['regression'] = 'regression'

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return (
        evaluator.Metric(
            'root_mean_square_error', 'Root mean square error', 'min'),
        evaluator.Metric('mean_absolute_error', mode='min'),
        evaluator.Metric('r2', 'R²'), metrics.LOSS)

  def metrics_on(self, dataset: data.Metadata) -> tuple[str, ...]:
    # `num_classes` is the number of targets; 0 if unknown.
    several = dataset.num_classes > 1
    return tuple(sorted(
        super().metrics_on(dataset), key=lambda name: several and name != 'r2'))

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    split = context.open(self)
    if not split.dataset.targets:
      raise UserError(
          f'{context.where} measures regression targets, but the labels of '
          f'{split.dataset.title} are classes. Use '
          f'--config.{context.where}.name=classification.')
    mean, std = np.asarray(split.target_mean), np.asarray(split.target_std)

    def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
      predictions = context.predict(params, batch)['logits'].astype(jnp.float32)
      labels = batch['label']
      return {'prediction': predictions, 'label': labels,
              'loss': context.loss(predictions, labels)}

    def finish(values: passes.Values) -> evaluator.Result:
      per_target = metrics.errors(values['prediction'], values['label'])
      for name in ('mean_absolute_error', 'root_mean_square_error'):
        per_target[name] = per_target[name] * std
      # A missing value adds 0 to the loss of its example.
      result = {'loss': float(values['loss'].mean(dtype=np.float64)
                              / (~np.isnan(values['label'])).mean())}
      for name, numbers in per_target.items():
        result[name] = float(numbers.mean())
        if len(split.dataset.targets) > 1:
          result |= {f'{name}_{target}': float(number)
                     for target, number in zip(split.dataset.targets, numbers)}
      pairs = np.stack([values['label'], values['prediction']], axis=-1)
      return evaluator.Result(
          {**result, 'examples': len(values['loss'])},
          {'predictions': pairs * std[:, None] + mean[:, None]},
          split.dataset.targets)

    return passes.gather(split, batch_values, finish)
