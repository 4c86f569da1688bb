"""Values of `model_type` in config.json of Hugging Face, and their settings.

The families list them. Source: the model and configuration classes of
transformers 5.23.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo import rotary as rotary_lib
from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import records

_OWN: Mapping[str, records.ModelType] = {
    kind: one for lineage in families.LINEAGES
    for kind, one in lineage.types.items()}
TYPES: Mapping[str, records.ModelType] = {
    **_OWN, **{kind: _OWN[other] for lineage in families.LINEAGES
               for kind, other in lineage.read_as.items()}}


def in_family(kind: records.ModelType) -> records.Family:
  """Returns the family, with the names that the type writes."""
  family = families.FAMILIES[kind.family]
  table = family.table.without(*kind.absent)
  return dataclasses.replace(
      family, written_as=kind.renames, table=dataclasses.replace(
          table, unused=kind.unused or table.unused))


def expected(
    kind: records.ModelType, config: vit_config.BackboneConfig,
) -> dict[str, Any]:
  """Returns the settings that a model must have, as far as not `free`."""
  result = {
      **dataclasses.asdict(vit_config.BackboneConfig()),
      **families.FAMILIES[kind.family].settings, **kind.settings,
      'num_classes': config.num_classes * bool(kind.classifier),
      **kind.implied(config)}
  if result['rotary']:
    base = {'base': config.rotary.base} if config.rotary else {}
    result['rotary'] = rotary_lib.RotaryConfig(**{**result['rotary'], **base})
  if result['cls'] is None:
    result['cls'] = result['pooling'].startswith('cls')
  return result
