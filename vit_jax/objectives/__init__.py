"""What is learned: a section of the config becomes a loss over batches."""

from collections.abc import Mapping
from typing import Any

from vit_jax import records
from vit_jax.objectives import supervised

ObjectiveConfig = supervised.SupervisedConfig

_OBJECTIVES = {'supervised': supervised.SupervisedConfig}


def parse(section: Mapping[str, Any]) -> ObjectiveConfig:
  """Returns the typed record of the section `objective`."""
  return records.parse_choice(
      _OBJECTIVES, {'name': 'supervised', **section}, where='objective')


build = supervised.Supervised
cross_entropy = supervised.cross_entropy
