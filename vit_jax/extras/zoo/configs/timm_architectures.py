"""timm's architectures that an exported model is built from.

The arguments of an architecture's class override some of its settings, see
`timm_arguments`; all others must be those of the model.
"""

from collections.abc import Mapping, Sequence
import functools
from typing import Any

from vit_jax import fields
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo import backbones
from vit_jax.extras.zoo import declared
from vit_jax.extras.zoo import timm_names
from vit_jax.extras.zoo.configs import timm_arguments
from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import records
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.weights import weights as weights_lib

# Settings that no architecture has of its own.
_FREE = (*vit_config.BackboneConfig.dimensions, 'position_mlp_dim')
_BITS = ('R50x1', 'R50x3', 'R101x1', 'R101x3', 'R152x2', 'R152x4')
# By class. The first that has all settings of a model is written.
_ARCHITECTURES: Mapping[timm_arguments.Kind, Sequence[records.Architecture]] = {
    kind: [one for lineage in families.LINEAGES
           for one in lineage.architectures if one.kind == name]
    for name, kind in timm_arguments.KINDS.items()}


@functools.cache
def _configs(
    kind: timm_arguments.Kind,
) -> list[tuple[records.Architecture, vit_config.BackboneConfig]]:
  """Returns the architectures of a class, with their settings."""
  return [(one, vit_config.general(factory.parse({
      **({'variant': one.name} if one.name in backbones.table() else
         {**dict.fromkeys(vit_config.BackboneConfig.dimensions, 4),
          **(timm_names.find_architecture(one.name) or {}), 'num_heads': 1}),
      **one.settings}))) for one in _ARCHITECTURES[kind]]


def find(model: weights_lib.Weights) -> tuple[str, timm_arguments.Kind]:
  """Returns the architecture of a ViT, and its class.

  Raises:
    UserError: if timm has none.
  """
  config = model.config
  assert isinstance(config, vit_config.BackboneConfig)
  kind = timm_arguments.kind_of(model)
  differing = _differing(config, kind)
  name = min(differing, key=lambda name: len(differing[name]))
  if differing[name]:  # Those of the closest are the fewest to change.
    raise _no_architecture(config, *differing[name])
  return name, kind


def find_resnet(config: model_config.ModelConfig) -> str:
  """Returns the architecture of a BiT.

  Raises:
    UserError: if timm has none.
  """
  for name in _BITS:
    if declared.has_dimensions(config, name):
      return f'resnetv2_{name[1:]}_bit'
  raise _no_architecture(config, 'backbone')


def _differing(
    config: vit_config.BackboneConfig, kind: timm_arguments.Kind,
) -> dict[str, list[str]]:
  """Returns the settings of a class's architectures that a model lacks."""
  stored = {*kind.stored(config), *_FREE}
  values = _compared(config, kind)
  return {one.name: [
      name for name, value in _compared(theirs, kind).items()
      if value != values.get(name, value) and (
          name not in stored or name in one.fixed)]
          for one, theirs in _configs(kind)}


def _compared(
    config: vit_config.BackboneConfig, kind: timm_arguments.Kind,
) -> dict[str, Any]:
  """Returns settings as an architecture of a class has them."""
  backbone, rotary = config.backbone, config.rotary
  scaled = config.layer_scale is not None
  result = {
      **{name: getattr(config, name) for name in fields.switches(config)},
      'cls': config.has_cls, 'layer_scale': scaled,
      'gelu': config.gelu if config.mlp == 'gelu' else 'exact',
      'backbone': backbone and (
          tuple(backbone.depths), backbone.width, backbone.preactivation)}
  if config.stem_norm == 'patches':  # An argument of AIMv2 sets it.
    del result['layer_norm_epsilon']
  if kind is timm_arguments.EVA:
    result['pool_prefix'] = config.pool_prefix == (
        config.pooling == 'attention')
    result['rotary'] = rotary is not None and bool(
        rotary.register_base or not (
            scaled or rotary.reference or rotary.learned
            or rotary.coordinates == 'normalized'))
  elif kind in (timm_arguments.VIT, timm_arguments.NAFLEX):
    # A norm after pooling replaces the final norm.
    result['final_norm'] = not (config.final_norm and config.pool_norm)
    if kind is timm_arguments.NAFLEX:
      result['position_cls'] = config.has_cls and config.position_cls
  elif kind in (timm_arguments.BEIT, timm_arguments.RELPOS):
    result['final_norm'] = config.final_norm != config.pool_norm
  return result


def _no_architecture(
    config: model_config.ModelConfig, *names: str) -> UserError:
  settings = ', '.join(f'{name}={getattr(config, name)!r}' for name in names)
  return UserError(
      f'timm has no architecture with {settings}. Save the model as orbax, or '
      'first load it with other values: load(path, NAME=VALUE).')
