"""Objectives: losses over batches, built from section `objective`.

To add one, write a record that extends `ObjectiveConfig`. A config names it as
'my_module:MyRecord' (docs/extend.md), or by its name in `registry.OBJECTIVES`.
"""

from collections.abc import Mapping
from typing import Any

from vit_jax import registry
from vit_jax import schema
from vit_jax.objectives.objective import Context
from vit_jax.objectives.objective import Losses
from vit_jax.objectives.objective import Metric
from vit_jax.objectives.objective import Objective
from vit_jax.objectives.objective import ObjectiveConfig
from vit_jax.objectives.objective import PROJECTOR
from vit_jax.objectives.objective import TEACHER


def config_type(name: str) -> type[ObjectiveConfig]:
  """Returns the config record of a kind of objective."""
  return registry.find(
      name, registry.OBJECTIVES, what='objective.name', kind=ObjectiveConfig)


def parse(section: Mapping[str, Any]) -> ObjectiveConfig:
  """Returns the record of section `objective`."""
  section = {'name': 'supervised', **section}
  return schema.parse(config_type(section['name']), section, where='objective')
