"""Objectives: losses over batches, built from section `objective`.

To add one, write a module `my_kind` whose `MyKindConfig` extends
`ObjectiveConfig`, and add its name to `KINDS`.
"""

from collections.abc import Mapping
import importlib
from typing import Any

from vit_jax import schema
from vit_jax.objectives.objective import Context
from vit_jax.objectives.objective import Objective
from vit_jax.objectives.objective import ObjectiveConfig
from vit_jax.objectives.objective import PROJECTOR
from vit_jax.objectives.objective import TEACHER

# Modules, each imported once a config uses it.
KINDS = ('supervised', 'distill', 'masked_patch', 'mae', 'lejepa',
         'segmentation')


def config_type(name: str) -> type[ObjectiveConfig]:
  """Returns the config record of a kind of objective."""
  schema.check_name(name, KINDS, what='objective.name')
  module = importlib.import_module(f'{__name__}.{name}')
  return getattr(module, f'{name.title().replace("_", "")}Config')


def parse(section: Mapping[str, Any]) -> ObjectiveConfig:
  """Returns the record of section `objective`."""
  section = {'name': 'supervised', **section}
  return schema.parse(
      config_type(section['name']), section, where='objective')
