"""Published variant of a model with inferred dimensions."""

from typing import Any

from vit_jax import models
from vit_jax.models import backbones
from vit_jax.models import variants
from vit_jax.models import vit_config


def variant(config: models.ModelConfig) -> str:
  """Returns the published variant of a model's dimensions; '' if none."""
  return next((
      name for name in _candidates(config) if has_dimensions(config, name)
      and all(getattr(config, key) == value for key, value in
              variants.SETTINGS.get(name.split('/')[0], {}).items())), '')


def dimensions(name: str) -> dict[str, Any]:
  """Returns the keys of the section `model` that a variant determines."""
  return _dimensions(models.parse({'variant': name}))


def has_dimensions(config: models.ModelConfig, name: str) -> bool:
  """Whether a model has the dimensions of a variant."""
  return _dimensions(config) == dimensions(name)


def check_num_heads(name: str, declared: int) -> None:
  """Compares the heads of a variant with those that weights declare.

  Arrays without an axis of heads fit any number, but compute other outputs.

  Raises:
    ValueError: if the numbers differ.
  """
  heads = dimensions(name).get('num_heads', 0)
  if heads and declared and heads != declared:
    raise ValueError(
        f'The variant {name} has num_heads={heads}, but the weights declare '
        f'num_heads={declared}. Leave out the variant, or set num_heads, too.')


def _candidates(config: models.ModelConfig) -> list[str]:
  names = [name for name in variants.PUBLISHED
           if (name in variants.RESNETS) == (config.name == 'resnet')]
  if isinstance(config, vit_config.ViTConfig) and not config.backbone:
    names += [f'{size}/{config.patch_shape[0]}' for size in backbones.SIZES]
  return list(dict.fromkeys(names))


def _dimensions(config: models.ModelConfig) -> dict[str, Any]:
  keys = ('name', *(vit_config.DIMENSIONS if config.name == 'vit' else ()))
  backbone = config.backbone and {
      'depths': config.backbone.depths, 'width': config.backbone.width}
  return {**{key: getattr(config, key) for key in keys}, 'backbone': backbone}
