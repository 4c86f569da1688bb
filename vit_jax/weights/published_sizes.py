"""Published variant of a model with inferred dimensions."""

from collections.abc import Mapping
from typing import Any

from vit_jax import models
from vit_jax.models import variants
from vit_jax.models import vit_config

_Depths = tuple[int, ...]


def variant(
    config: models.ModelConfig, *, declared: Mapping[str, Any],
    source: str = '',
) -> str:
  """Returns the published variant of a model's dimensions; '' if none.

  Args:
    config: the model.
    declared: keys of the section `model` that are not inferred from arrays.
    source: file, for the message.

  Raises:
    ValueError: if the model is a published one without its last layers, and
      `declared` does not contain its depth: the file is then incomplete.
  """
  widths, depths = _dimensions(config)
  missing: dict[str, int] = {}
  complete = False
  for name in _candidates(config):
    other_widths, full = _dimensions(models.parse({'variant': name}))
    if other_widths != widths or any(
        getattr(config, key) != value
        for key, value in variants.settings(name).items()):
      continue
    if full == depths:
      return name
    count = _num_missing(depths, _with_declared(full, depths, declared))
    complete |= count == 0
    if count:
      missing[name] = count
  if missing and not complete:
    name = min(missing, key=missing.__getitem__)
    full = _dimensions(models.parse({'variant': name}))[1]
    remedy = (f'depth={depths[0]}' if depths[1:] == full[1:] else
              f"backbone={{'depths': {depths[1:]}}}")
    raise ValueError(
        f'{source} has the widths of {name}, but only '
        f'{_text(depths)} of {_text(full)} layers. If the model is complete, '
        f'load it with {remedy}.')
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


def find_by_width(width: int, mlp_dim: int) -> str:
  """Returns the published size of these widths; '' if none."""
  return next((name for name, size in variants.SIZES.items()
               if (size.width, size.mlp_dim) == (width, mlp_dim)), '')


def has_dimensions(config: models.ModelConfig, name: str) -> bool:
  """Whether the dimensions of a model are those of a variant."""
  return _dimensions(config) == _dimensions(models.parse({'variant': name}))


def _candidates(config: models.ModelConfig) -> list[str]:
  names = [name for name in variants.PUBLISHED
           if variants.family(name) == config.name]
  if isinstance(config, vit_config.ViTConfig) and not config.backbone:
    names += [f'{size}/{config.patch_shape[0]}' for size in variants.SIZES]
  return list(dict.fromkeys(names))


def _dimensions(config: models.ModelConfig) -> tuple[tuple, _Depths]:
  """Returns what identifies a size, and its layers and residual units."""
  backbone = config.backbone
  stages = tuple(backbone.depths) if backbone else ()
  widths: tuple = (config.name, backbone.width if backbone else 0)
  if not isinstance(config, vit_config.ViTConfig):
    return widths, (0, *stages)
  return (*widths, config.width, config.mlp_dim, config.num_heads,
          config.patch_shape), (config.depth, *stages)


def _with_declared(
    full: _Depths, depths: _Depths, declared: Mapping[str, Any],
) -> _Depths:
  """Replaces published depths by those that are declared."""
  depth = depths[0] if 'depth' in declared else full[0]
  stages = (depths if (declared.get('backbone') or {}).get('depths')
            else full)[1:]
  return depth, *stages


def _num_missing(depths: _Depths, full: _Depths) -> int | None:
  """Returns how many layers are missing; None if others are there."""
  padded = (*depths, *(0,) * (len(full) - len(depths)))
  if len(padded) > len(full) or any(d > f for d, f in zip(padded, full)):
    return None
  return sum(full) - sum(padded)


def _text(depths: _Depths) -> str:
  return ' + '.join(str(n) for n in depths if n)
