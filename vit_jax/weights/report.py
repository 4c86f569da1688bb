"""Human-readable report of a weight load."""

from collections.abc import Iterable, Iterator, Mapping
import re
from typing import Any

from vit_jax import schema
from vit_jax import tree
from vit_jax.checkpoints import paths
from vit_jax.models import architecture
from vit_jax.weights import matching
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights.configs import declared as declared_lib

_MAX_NAMES = 4  # Names of classes or ignored arrays in a line.


def summary(
    weights: declared_lib.Weights, found: matching.Found,
    declared: declared_lib.Declared, given: overrides_lib.Overrides,
) -> Iterator[str]:
  """Yields lines about found, declared, inferred and assumed settings."""
  opened, config = found.opened, weights.config
  under = f', under {found.prefix}' if found.prefix else ''
  yield (f'{paths.display(opened.path)}: {found.family.label} '
         f'({opened.format}{under}), {count(weights.params)}')
  values = {name: schema.to_plain(value) for name, value in
            architecture.non_default(config).items()}
  if getattr(config, 'representation_layer', False):
    values['representation_layer'] = True
  size = f'{config.variant}, ' if config.variant else ''
  height, width = weights.resolution
  yield (f'  model: {size}{config.num_classes} classes, images {height}x{width}'
         + _listed(values.items(), start=', '))
  yield from (f'  {note}' for note in declared.notes)
  if not config.num_classes:
    yield '  no head in the file: 0 classes, logits are empty'
  yield from settings(weights, source=declared.source)
  yield from filter(None, [_listed(
      {**given.model, **given.preprocess}.items(), start='  overrides: ')])
  if found.left_out:
    groups = dict.fromkeys(
        _group(name, found.prefix) for name in found.left_out)
    yield (f'  ignored: {len(found.left_out)} arrays that are not parameters: '
           + _shortened(groups))


def settings(
    weights: declared_lib.Weights, *, source: str) -> Iterator[str]:
  """Yields a line for each origin of settings, except those of the caller.

  Args:
    weights: the model.
    source: the file that declares the model; '' for none.
  """
  values = _values(weights)
  groups: dict[declared_lib.Origin, list[str]] = (
      {declared_lib.Origin('declared', source): ['model']} if source else {})
  for name, origin in weights.settings.items():
    if name in values and origin.status != 'given' and (
        name, origin.status) != ('heads', 'assumed'):
      groups.setdefault(origin, []).append(f'{name}={values[name]}')
  words = {'declared': ' by ', 'inferred': ' from ', 'assumed': ', '}
  for origin, texts in groups.items():
    of = words[origin.status] + paths.display(origin.source) if (
        origin.source) else ''
    yield f'  {origin.status}{of}: {", ".join(texts)}'
  heads = weights.settings['heads']
  if 'heads' in values and heads.status == 'assumed':
    yield (f'  assumed: {values["heads"]} heads; if wrong, all outputs are '
           f'wrong: num_heads=N ({heads.source})')


def _values(weights: declared_lib.Weights) -> dict[str, str]:
  """Returns the text of each setting that the model has."""
  preprocess, config = weights.preprocess, weights.config

  def channels(values: tuple[float, ...]) -> str:
    return f'{values[0]:g}' if len(set(values)) == 1 else (
        f'({", ".join(f"{value:g}" for value in values)})')

  result = {
      'mean': channels(preprocess.mean), 'std': channels(preprocess.std)}
  if preprocess.resize_and_crop is None:
    result['resize'] = '; '.join(
        ' '.join(f'{value}' if key == 'op' else f'{key} {value}'
                 for key, value in op.items()) for op in preprocess.sections)
  else:
    resize, _ = preprocess.resize_and_crop
    size = _size(resize.least)
    result |= {
        'resize': f'shorter side to {resize.shorter}' if resize.shorter else (
            f'both sides to {size}' if resize.size else f'to cover {size}'),
        'crop': (_size(preprocess.resolution)
                 if len(preprocess.sections) > 1 else 'none'),
        'interpolation': resize.method}
  if config.num_classes:
    result['labels'] = _shortened(preprocess.labels) or 'none'
  if heads := getattr(config, 'num_heads', 0):
    result['heads'] = str(heads)
  return result


def _size(size: tuple[int, int]) -> str:
  return f'{size[0]}x{size[1]}'


def _group(name: str, prefix: str) -> str:
  """Returns an array's name up to where it leaves the prefix, such as head.*"""
  end = 0
  for part in re.finditer('[^/.]+[/.]?', name):
    end = part.end()
    if not prefix.startswith(name[:end]):
      break
  return name[:end] + '*' * (end < len(name))


def _shortened(names: Iterable[str]) -> str:
  names = list(names)
  return ', '.join(names[:_MAX_NAMES]) + ', ...' * (len(names) > _MAX_NAMES)


def _listed(items: Iterable[tuple[str, Any]], *, start: str) -> str:
  text = ', '.join(f'{name}={value}' for name, value in items)
  return text and start + text


def parameters(
    found: matching.Found, params: Mapping[str, Any],
) -> Iterator[str]:
  """Yields a line for each parameter, and for each array that is ignored."""
  for match in found.matches:
    first = match.theirs[0]
    more = f' (and {len(match.theirs) - 1} more)' if match.theirs[1:] else ''
    shape = getattr(params.get(match.ours), 'shape', '')
    yield f'  loaded  {first}{more} -> {match.ours} {shape}'.rstrip()
  for name in found.left_out:
    yield f'  ignored {name} {found.opened.shapes[name]}'
  read = sum(len(match.theirs) for match in found.matches)
  yield (f'  {read} arrays make {len(params)} parameters, '
         f'{len(found.left_out)} ignored')


def count(params: Mapping[str, Any]) -> str:
  """Returns '86,567,656 parameters'."""
  return f'{tree.num_elements(dict(params)):,} parameters'
