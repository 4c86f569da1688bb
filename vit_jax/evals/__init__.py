"""Evaluators: functions of parameters and a callback that return metrics.

To add one, write a record that extends `EvaluatorConfig`. A config names it as
'my_module:MyRecord' (docs/extend.md), or by its name in `registry.EVALUATORS`.
"""

from collections.abc import Mapping
from typing import Any

from vit_jax import registry
from vit_jax import schema
from vit_jax.evals.evaluator import Context
from vit_jax.evals.evaluator import Evaluate
from vit_jax.evals.evaluator import EvaluatorConfig
from vit_jax.evals.evaluator import Metric
from vit_jax.evals.evaluator import Result
from vit_jax.evals.evaluator import Split
from vit_jax.exceptions import UserError


def config_type(
    name: str, *, where: str = 'evaluator') -> type[EvaluatorConfig]:
  """Returns the config record of a kind of evaluator."""
  return registry.find(
      name, registry.EVALUATORS, what=f'{where}.name', kind=EvaluatorConfig)


def parse(sections: Mapping[str, Any]) -> dict[str, EvaluatorConfig]:
  """Returns a typed record for each evaluator of the section `evals`."""
  records = {}
  for name, section in sections.items():
    # 'train/loss' would be two metrics, and 'a/b/loss' one of `a`.
    if name == 'train' or '/' in name:
      raise UserError(
          f'evals: {name!r} cannot be the name of an evaluator: metrics are '
          'called NAME/METRIC, and those of training train/METRIC. Use another '
          'name.')
    where = f'evals.{name}'
    section = {'name': 'auto', **schema.check_section(section, where=where)}
    record = config_type(section['name'], where=where)
    # Runs have stored keys that ended; flags must not set them.
    records[name] = schema.parse(record, {
        key: value for key, value in section.items()
        if key not in record.ended or isinstance(value, schema.FlagText)
    }, where=where)
  return records
