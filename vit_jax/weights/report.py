"""Human-readable report of a weight load."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax.models import architecture
from vit_jax.weights import matching
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights.configs import declared as declared_lib

_MAX_NAMES = 4


def summary(
    found: matching.Found, config: models.ModelConfig,
    params: Mapping[str, Any], resolution: Sequence[int],
    declared: declared_lib.Declared, given: overrides_lib.Overrides,
    notes: Sequence[str],
) -> tuple[str, ...]:
  """Returns lines on what was found, inferred and assumed."""
  opened = found.opened
  under = f', under {found.prefix}' if found.prefix else ''
  lines = [f'model: {model_line(config, resolution)}', *notes, *declared.notes]
  if not config.num_classes:
    lines.append('no head in the file: 0 classes, logits are empty')
  if declared.source:
    lines.append(f'declared by: {declared.source}')
  overrides = ', '.join(f'{name}={value}' for name, value in given.items())
  if overrides:
    lines.append(f'overrides: {overrides}')
  if not {'mean', 'std'} & {*declared.preprocess, *given.preprocess}:
    lines.append('assumed: images in [-1, 1] (mean 0.5, std 0.5)')
  return (f'{opened.path}: {found.family.label} ({opened.format}{under}), '
          f'{count(params)}',
          *(f'  {line}' for line in (*lines, *_array_lines(found))))


def model_line(config: models.ModelConfig, resolution: Sequence[int]) -> str:
  """Returns the variant, and all settings that are not the default."""
  settings = [f'{name}={schema.to_plain(value)}' for name, value in
              architecture.non_default(config).items()]
  return ', '.join([
      config.variant or 'no published size', f'{config.num_classes} classes',
      f'images {resolution[0]}x{resolution[1]}', *settings,
      *(['representation_layer'] if getattr(
          config, 'representation_layer', False) else [])])


def _array_lines(found: matching.Found) -> Iterator[str]:
  names = found.left_out
  if names:
    shown = ', '.join(names[:_MAX_NAMES]) + ', ...' * (len(names) > _MAX_NAMES)
    yield f'ignored: {len(names)} arrays that are no parameters: {shown}'
  read = [found.prefix + name for match in found.matches
          for name in match.theirs]
  headers = found.opened.headers
  wide = [name for name in read if headers[name].dtype == 'float64']
  if wide:
    yield f'converted: {len(wide)} of {len(read)} arrays, float64 to float32'


def per_parameter(
    found: matching.Found, params: Mapping[str, Any],
) -> tuple[str, ...]:
  """Returns a line for each parameter, and for each array that is ignored."""
  lines = []
  for match in found.matches:
    first = match.theirs[0]
    more = f' (and {len(match.theirs) - 1} more)' if match.theirs[1:] else ''
    shape = getattr(params.get(match.ours), 'shape', None)
    lines.append(f'  loaded  {first}{more} -> {match.ours}'
                 + (f' {shape}' if shape else ''))
  lines += [f'  ignored {name} {found.opened.headers[name].shape}'
            for name in found.left_out]
  read = sum(len(match.theirs) for match in found.matches)
  lines.append(f'  {read} arrays make {len(params)} parameters, '
               f'{len(found.left_out)} ignored')
  return tuple(lines)


def count(params: Mapping[str, Any]) -> str:
  """Returns '86,567,656 parameters'."""
  return f'{tree.num_elements(dict(params)):,} parameters'
