"""Evaluators: functions of parameters that return named metrics.

To add one, write a module with a config that extends `EvaluatorConfig` and add
the config to `EvalConfig`.
"""

from collections.abc import Mapping
import typing
from typing import Any

from vit_jax import schema
from vit_jax.evals import calibration
from vit_jax.evals import classification
from vit_jax.evals import confusion
from vit_jax.evals import fewshot
from vit_jax.evals import knn
from vit_jax.evals import multi_label
from vit_jax.evals import objective
from vit_jax.evals import regression
from vit_jax.evals.evaluator import Context
from vit_jax.evals.evaluator import Evaluator
from vit_jax.evals.evaluator import EvaluatorConfig
from vit_jax.evals.evaluator import Result
from vit_jax.evals.evaluator import Split

EvalConfig = (
    classification.ClassificationConfig | multi_label.MultiLabelConfig
    | confusion.ConfusionConfig | calibration.CalibrationConfig
    | fewshot.FewshotConfig | knn.KnnConfig | objective.ObjectiveConfig
    | regression.RegressionConfig)

_CONFIGS = {config.name: config for config in typing.get_args(EvalConfig)}
KINDS = tuple(_CONFIGS)

__all__ = [
    'KINDS',
    'Context',
    'EvalConfig',
    'Evaluator',
    'EvaluatorConfig',
    'Result',
    'Split',
    'build',
    'parse',
]


def parse(sections: Mapping[str, Any]) -> dict[str, EvalConfig]:
  """Returns a typed record for each evaluator of the section `evals`."""
  return {
      name: schema.parse_choice(
          _CONFIGS, {'name': 'classification', **section},
          where=f'evals.{name}')
      for name, section in sections.items()}


def build(config: EvaluatorConfig, context: Context) -> Evaluator:
  """Opens the data of an evaluator and returns it.

  Raises:
    ValueError: if the data is missing or does not fit the model.
  """
  return Evaluator(config.build(context))
