"""Evaluators: functions of parameters that return named metrics.

To add one, write a module `my_kind` whose `MyKindConfig` extends
`EvaluatorConfig`, and add its name to `KINDS`.
"""

from collections.abc import Mapping
import importlib
from typing import Any

from vit_jax import schema
from vit_jax.evals.evaluator import Context
from vit_jax.evals.evaluator import Evaluate
from vit_jax.evals.evaluator import EvaluatorConfig
from vit_jax.evals.evaluator import Mode
from vit_jax.evals.evaluator import Result
from vit_jax.evals.evaluator import Split

# Modules, each imported once a config uses it.
KINDS = ('auto', 'classification', 'multi_label', 'confusion', 'calibration',
         'fewshot', 'knn', 'objective', 'regression', 'roc',
         'segmentation', 'segmentation_head', 'shift', 'spread')
# Evaluators of known datasets, under their names.
DATASETS: dict[str, dict[str, str]] = {
    'imagenet_v2': {'name': 'shift', 'source': 'imagenet_v2/matched-frequency'},
    **{source: {'name': 'shift', 'source': source}
       for source in ('imagenet_a', 'imagenet_r', 'imagenet_sketch')},
    'objectnet': {'name': 'shift', 'source': './objectnet-1.0/images',
                  'mappings': './objectnet-1.0/mappings'}}


def config_type(name: str, *, where: str) -> type[EvaluatorConfig]:
  """Returns the config record of a kind of evaluator."""
  schema.check_name(name, KINDS, what=f'{where}.name')
  module = importlib.import_module(f'{__name__}.{name}')
  return getattr(module, f'{name.title().replace("_", "")}Config')


def parse(sections: Mapping[str, Any]) -> dict[str, EvaluatorConfig]:
  """Returns a typed record for each evaluator of the section `evals`."""
  records = {}
  for name, section in sections.items():
    # 'train/loss' would be two metrics, and 'a/b/loss' one of `a`.
    if name == 'train' or '/' in name:
      raise ValueError(
          f'evals: {name!r} cannot be the name of an evaluator: metrics are '
          'called NAME/METRIC, and those of training train/METRIC. Use another '
          'name.')
    where, section = f'evals.{name}', {'name': 'auto', **section}
    record = config_type(section['name'], where=where)
    records[name] = schema.parse(record, section, where=where)
  return records
