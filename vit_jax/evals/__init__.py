"""What is measured of a model: sections of the config become evaluators.

An evaluator is a function of parameters that returns named numbers. It gets
`predict` and the batches it needs, and never sees the trainer.
"""

from collections.abc import Mapping
from typing import Any

from vit_jax import records
from vit_jax.evals import classification

EvalConfig = classification.ClassificationConfig

METRICS = classification.METRICS

_EVALUATORS = {'classification': classification.ClassificationConfig}


def parse(sections: Mapping[str, Any]) -> dict[str, EvalConfig]:
  """Returns a typed record for each evaluator of the section `evals`."""
  return {
      name: records.parse_choice(
          _EVALUATORS, {'name': 'classification', **section},
          where=f'evals.{name}')
      for name, section in sections.items()}


build = classification.Classification
