"""The evaluator of the task, inferred from the labels of the training data."""

import dataclasses
from typing import Literal

from vit_jax import data
from vit_jax.evals import classification
from vit_jax.evals import evaluator
from vit_jax.evals import regression


@dataclasses.dataclass(frozen=True)
class AutoConfig(classification.ClassificationConfig):
  """An entry of the section `evals` without a `name`, or with `name: 'auto'`.

  A run replaces it by `regression` if the labels are numbers, and else by
  `classification`, which measures one or several labels per image.
  """
  name: Literal['auto'] = 'auto'  # type: ignore[assignment]

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return tuple(dict.fromkeys((
        *super().metrics(), *regression.RegressionConfig().metrics())))

  def resolve(self, dataset: data.Metadata) -> evaluator.EvaluatorConfig:
    kind = (regression.RegressionConfig if dataset.targets
            else classification.ClassificationConfig)
    return kind(**{
        field.name: getattr(self, field.name)
        for field in dataclasses.fields(kind) if field.name != 'name'})
