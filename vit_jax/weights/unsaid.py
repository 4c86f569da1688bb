"""What a file of names and shapes alone does not say of its model."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any

from vit_jax import models
from vit_jax import schema
from vit_jax.models import vit_config
from vit_jax.weights.configs import preprocessing as preprocessing_lib

_MAX_CHARACTERS = 60
# What a reader may refuse to believe of arrays alone.
_DOUBTED = ('depth', 'position', 'final_norm')


def settings(
    read: Callable[[Mapping[str, Any]], Any], *, config: models.ModelConfig,
    resolution: tuple[int, int], preprocess: preprocessing_lib.Preprocess,
    positions: str,
) -> dict[str, tuple[Any, Any]]:
  """Reads a file as nobody who knows more would, and compares.

  Args:
    read: reads it, with the overrides that it is given; returns what has the
      attributes of a model.
    config: of the model that is in it.
    resolution: height and width that its positions are for.
    preprocess: what its images go through.
    positions: how its positions are resized.

  Returns:
    For each setting that must be given to read the model back, its value, and
    what it reads back as without (None where the file cannot be read then).

  Raises:
    ValueError: if it cannot be read at all.
  """
  given, found = _read(read, config, resolution)
  size = found.resolution
  result: dict[str, tuple[Any, Any]] = {
      name: (value, None) for name, value in given.items()}
  have, want = comparable(found.config), comparable(config)
  result |= {name: (want[name], have[name]) for name in want
             if want[name] != have[name] and name not in result}
  result |= {
      name: (getattr(preprocess, name), getattr(found.preprocess, name))
      for name in preprocessing_lib.NAMES
      if getattr(preprocess, name) != getattr(found.preprocess, name)
      and name not in result}
  if size != resolution and 'resolution' not in result:
    result['resolution'] = (resolution, size)
  if positions != found.positions:
    result['positions'] = (positions, found.positions)
  return result


def as_text(name: str, value: Any) -> str:
  """Returns 'num_heads=8', with a long list in few words."""
  text = repr(value)
  if len(text) > _MAX_CHARACTERS and isinstance(value, (tuple, list)):
    text = f'({value[0]!r}, ... {len(value)} in all)'
  return f'{name}={text}'


def _read(
    read: Callable[[Mapping[str, Any]], Any], config: models.ModelConfig,
    resolution: tuple[int, int],
) -> tuple[dict[str, Any], Any]:
  """Reads with the fewest settings that make it readable at all.

  A reader takes what looks like a damaged file for one, unless it is told that
  the model is to be so.
  """
  try:
    return {}, read({})
  except ValueError as error:
    refused = error
  given = {name: value for name, value in {
      'resolution': resolution,
      **{name: getattr(config, name, None) for name in _DOUBTED},
  }.items() if value is not None}
  try:
    found = read(given)
  except ValueError:
    raise refused from None
  for name in list(given):
    fewer = {n: value for n, value in given.items() if n != name}
    try:
      found, given = read(fewer), fewer
    except ValueError:
      continue
  return given, found


def comparable(config: models.ModelConfig) -> dict[str, Any]:
  """Returns the section, the same for what is the same model."""
  plain = schema.to_plain(dataclasses.replace(config, variant=''))
  plain['num_classes'] = config.num_classes
  if isinstance(config, vit_config.ViTConfig):
    plain |= {'cls': config.has_cls, 'patch': list(config.patch_shape)}
    if config.position == 'none':
      plain['position_cls'] = True
  return plain
