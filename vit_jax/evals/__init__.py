"""What is measured of a model: sections of the config become evaluators.

An evaluator is a function of parameters that returns named numbers. It gets a
`Context`, of which it opens the data it needs, and never sees the trainer.
"""

from collections.abc import Mapping
from typing import Any

from vit_jax import schema
from vit_jax.evals import calibration
from vit_jax.evals import classification
from vit_jax.evals import confusion
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import fewshot
from vit_jax.evals import knn
from vit_jax.evals import multi_label
from vit_jax.evals import objective
from vit_jax.evals import regression

Context = evaluator_lib.Context
Evaluator = evaluator_lib.Evaluator
Measured = evaluator_lib.Measured
Split = evaluator_lib.Split

EvalConfig = (
    calibration.CalibrationConfig | classification.ClassificationConfig
    | confusion.ConfusionConfig | fewshot.FewshotConfig | knn.KnnConfig
    | multi_label.MultiLabelConfig | objective.ObjectiveConfig
    | regression.RegressionConfig)

# A name's record, and the module that measures what it says.
_EVALUATORS: Mapping[str, tuple[type, Any]] = {
    'classification': (classification.ClassificationConfig, classification),
    'multi_label': (multi_label.MultiLabelConfig, multi_label),
    'confusion': (confusion.ConfusionConfig, confusion),
    'calibration': (calibration.CalibrationConfig, calibration),
    'fewshot': (fewshot.FewshotConfig, fewshot),
    'knn': (knn.KnnConfig, knn),
    'objective': (objective.ObjectiveConfig, objective),
    'regression': (regression.RegressionConfig, regression),
}
KINDS = tuple(_EVALUATORS)


def parse(sections: Mapping[str, Any]) -> dict[str, EvalConfig]:
  """Returns a typed record for each evaluator of the section `evals`."""
  known = {name: record for name, (record, _) in _EVALUATORS.items()}
  return {
      name: schema.parse_choice(
          known, {'name': 'classification', **section}, where=f'evals.{name}')
      for name, section in sections.items()}


def metrics_of(section: EvalConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics that an evaluator may give, and which way is better.

  Which of them it gives may depend on the data.
  """
  return _module(section).metrics_of(section)


classification_metrics = classification.measured


def uses_head(section: EvalConfig) -> bool:
  """Whether the model's classes must be those of the data."""
  return _module(section).USES_HEAD


def build(section: EvalConfig, context: Context) -> Evaluator:
  """Returns the evaluator of a section, its data opened.

  Raises:
    ValueError: if the data is not there, or does not fit the model.
  """
  return Evaluator(_module(section).build(section, context))


def _module(section: EvalConfig) -> Any:
  return _EVALUATORS[section.name][1]
