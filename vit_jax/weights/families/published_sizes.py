"""Published variant of a model with inferred dimensions."""

from collections.abc import Mapping
from typing import Any

from vit_jax import models
from vit_jax.models import sizes
from vit_jax.models import variants
from vit_jax.models import vit_config

_Depths = tuple[int, ...]


def variant(
    config: models.ModelConfig, *, declared: Mapping[str, Any],
    path: str = '',
) -> str:
  """Returns the published variant of a model's dimensions; '' if none.

  `declared` are the keys of the section `model` that a config or the caller
  gives.

  Raises:
    ValueError: if the file is incomplete: the model is a published one without
      its last layers, and `declared` does not contain its depth.
  """
  widths, depths = _dimensions(config)
  candidates = {}
  for name in _candidates(config):
    published, full = _dimensions(models.parse({'variant': name}))
    if (published, len(full)) == (widths, len(depths)) and all(
        getattr(config, key) == value
        for key, value in variants.SETTINGS.get(
            name.split('/')[0], {}).items()):
      candidates[name] = full
  if exact := [name for name, full in candidates.items() if full == depths]:
    return exact[0]
  if 'depth' in declared or (declared.get('backbone') or {}).get('depths'):
    return ''
  for name, full in candidates.items():
    if all(found <= most for found, most in zip(depths, full)):
      raise ValueError(
          f'{path} has the widths of {name}, but only {_text(depths)} of '
          f'{_text(full)} layers. If the model is complete, load it with '
          + (f'depth={depths[0]}' if depths[1:] == full[1:] else
             f"backbone={{'depths': {depths[1:]}}}")
          + ', or write it anew with `convert --set` and these settings.')
  return ''


def dimensions(name: str) -> dict[str, Any]:
  """Returns the keys of the section `model` that a variant determines."""
  config = models.parse({'variant': name})
  keys = ['name']
  if isinstance(config, vit_config.ViTConfig):
    keys += vit_config.DIMENSIONS
  backbone = config.backbone and {
      'depths': config.backbone.depths, 'width': config.backbone.width}
  return {**{key: getattr(config, key) for key in keys}, 'backbone': backbone}


def has_dimensions(config: models.ModelConfig, name: str) -> bool:
  """Whether a model has the dimensions of a variant."""
  return _dimensions(config) == _dimensions(models.parse({'variant': name}))


def _candidates(config: models.ModelConfig) -> list[str]:
  names = [name for name in variants.PUBLISHED
           if (name in variants.RESNETS) == (config.name == 'resnet')]
  if isinstance(config, vit_config.ViTConfig) and not config.backbone:
    names += [f'{size}/{config.patch_shape[0]}' for size in sizes.SIZES]
  return list(dict.fromkeys(names))


def _dimensions(config: models.ModelConfig) -> tuple[tuple, _Depths]:
  """Returns the widths of a size, and its numbers of layers and units."""
  backbone = config.backbone
  stages = tuple(backbone.depths) if backbone else ()
  widths: tuple = (config.name, backbone.width if backbone else 0)
  if not isinstance(config, vit_config.ViTConfig):
    return widths, (0, *stages)
  return (*widths, config.width, config.mlp_dim, config.num_heads,
          config.patch_shape), (config.depth, *stages)


def _text(depths: _Depths) -> str:
  return ' + '.join(str(n) for n in depths if n)
