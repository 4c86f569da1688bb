"""Human-readable report of a weight load."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
) -> Iterator[str]:
  """Yields lines on what was found, inferred and assumed."""
  opened = found.opened
  under = f', under {found.prefix}' if found.prefix else ''
  yield (f'{opened.path}: {found.family.label} ({opened.format}{under}), '
         f'{count(params)}')
  settings = {name: schema.to_plain(value) for name, value in
              architecture.non_default(config).items()}
  if getattr(config, 'representation_layer', False):
    settings['representation_layer'] = True
  yield (f'  model: {config.variant or "no published size"}, '
         f'{config.num_classes} classes, images {resolution[0]}x'
         f'{resolution[1]}' + _listed(settings.items(), start=', '))
  for note in (*notes, *declared.notes):
    yield f'  {note}'
  if not config.num_classes:
    yield '  no head in the file: 0 classes, logits are empty'
  if declared.source:
    yield f'  declared by: {declared.source}'
  yield from filter(None, [_listed(given.items(), start='  overrides: ')])
  if not {'mean', 'std'} & {*declared.preprocess, *given.preprocess}:
    yield '  assumed: images in [-1, 1] (mean 0.5, std 0.5)'
  if names := found.left_out:
    shown = ', '.join(names[:_MAX_NAMES]) + ', ...' * (len(names) > _MAX_NAMES)
    yield f'  ignored: {len(names)} arrays that are no parameters: {shown}'
  read = [found.prefix + name for match in found.matches
          for name in match.theirs]
  wide = [name for name in read if opened.headers[name].dtype == 'float64']
  if wide:
    yield f'  converted: {len(wide)} of {len(read)} arrays, float64 to float32'


def _listed(items: Iterable[tuple[str, Any]], *, start: str) -> str:
  text = ', '.join(f'{name}={value}' for name, value in items)
  return text and start + text


def per_parameter(
    found: matching.Found, params: Mapping[str, Any],
) -> Iterator[str]:
  """Yields a line for each parameter, and for each array that is ignored."""
  for match in found.matches:
    first = match.theirs[0]
    more = f' (and {len(match.theirs) - 1} more)' if match.theirs[1:] else ''
    shape = getattr(params.get(match.ours), 'shape', '')
    yield f'  loaded  {first}{more} -> {match.ours} {shape}'.rstrip()
  for name in found.left_out:
    yield f'  ignored {name} {found.opened.headers[name].shape}'
  read = sum(len(match.theirs) for match in found.matches)
  yield (f'  {read} arrays make {len(params)} parameters, '
         f'{len(found.left_out)} ignored')


def count(params: Mapping[str, Any]) -> str:
  """Returns '86,567,656 parameters'."""
  return f'{tree.num_elements(dict(params)):,} parameters'
