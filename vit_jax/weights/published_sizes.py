"""Published variant of a model with inferred dimensions."""

from typing import Any

from vit_jax.models import model_config
from vit_jax.models import resnet_config
from vit_jax.models import variants
from vit_jax.models import vit


def variant(config: model_config.ModelConfig) -> str:
  """Returns the published variant of a model's dimensions; '' if none."""
  return next((
      name for name in _candidates(config) if has_dimensions(config, name)
      and all(getattr(config, key, None) == value for key, value in
              variants.SETTINGS.get(name.split('/')[0], {}).items())), '')


def dimensions(name: str) -> dict[str, Any]:
  """Returns the keys of the section `model` that a variant determines."""
  section = variants.section(name)
  stem = section.get('backbone')
  keys = vit.ViTConfig.dimensions if 'width' in section else ('name',)
  return {**{key: section[key] for key in keys}, 'backbone': stem and {
      'depths': tuple(stem['depths']),
      'width': stem.get('width', resnet_config.StemConfig.width)}}


def has_dimensions(config: model_config.ModelConfig, name: str) -> bool:
  """Whether a model has the dimensions of a variant."""
  return _dimensions(config) == dimensions(name)


def _candidates(config: model_config.ModelConfig) -> list[str]:
  names = [name for name in variants.PUBLISHED
           if (name in variants.RESNETS) == (config.name == 'resnet')]
  if isinstance(config, vit.ViTConfig) and config.has_patches:
    names += [f'{size}/{config.patch_shape[0]}' for size in variants.SIZES]
  return list(dict.fromkeys(names))


def _dimensions(config: model_config.ModelConfig) -> dict[str, Any]:
  stem = getattr(config, 'backbone', None)
  keys = vit.ViTConfig.dimensions if config.has_tokens else ('name',)
  return {**{key: getattr(config, key) for key in keys}, 'backbone': stem and {
      'depths': stem.depths, 'width': stem.width}}
