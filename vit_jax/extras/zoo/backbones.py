"""Published backbones: dimensions and settings, by the names of timm.

`model.variant` can be any of these names. Sizes are from the papers of the
families, where printed, and otherwise from timm 1.0.31.
"""

from collections.abc import Mapping
import dataclasses
import functools
import re
from typing import Any

from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo import timm_names
from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import records


@dataclasses.dataclass(frozen=True)
class Backbone:
  """A published model.

  Attributes:
    size: dimensions of the encoder.
    resolution: side of the images of its weights.
    settings: `patch`, and other keys of the section `model` that differ from a
      plain ViT.
  """
  size: records.Size
  resolution: int
  settings: Mapping[str, Any]


@functools.cache
def table() -> Mapping[str, Backbone]:
  """Returns all backbones by name."""
  found = {}
  rows = (row for lineage in families.LINEAGES for row in lineage.backbones)
  for row in rows:
    patch = re.search(r'patch(\d+)', row.template)
    for word, size in row.sizes.items():
      for resolution in row.resolutions:
        name = row.template.format(word, resolution)
        found[name] = Backbone(
            size, resolution, {'patch': int(patch[1]) if patch else 16,
                               **_implied(name), **row.settings})
  return found


def _implied(name: str) -> dict[str, Any]:
  """Returns the GELU that a name implies, and settings unlike a plain ViT's.

  The GELU is always set: a model that starts from a checkpoint inherits the
  settings that its own section leaves out.
  """
  implied = timm_names.find_architecture(name)
  assert implied is not None, name
  defaults = {field.name: field.default
              for field in dataclasses.fields(vit_config.BackboneConfig)}
  return {key: value for key, value in implied.items()
          if key != 'num_heads' and (
              key == 'gelu' or value != defaults[key])}
