"""Spread of the features of images, which may have no labels."""

import dataclasses
from typing import ClassVar, Literal

from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import features as features_lib


@dataclasses.dataclass(frozen=True)
class SpreadConfig(features_lib.FeatureEvaluatorConfig):
  """An entry of the section `evals` with `name: 'spread'`."""
  name: Literal['spread'] = 'spread'

  uses_labels: ClassVar[bool] = False

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return features_lib.SPREAD

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    extract = features_lib.extract(
        context, context.open(self), self.feature, labelled=False)

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      values = extract(params, on_batch).values
      return evaluator.Result({
          **features_lib.checked_spread(context, values),
          'examples': len(values)})

    return run
