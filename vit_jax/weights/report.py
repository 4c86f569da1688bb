"""Lines about the arrays of a file: read, ignored, overridden."""

from collections.abc import Iterator, Mapping
import re
from typing import Any

from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.configs import declared as declared_lib
from vit_jax.weights.families import matching


def notes(
    found: matching.Found, declared: declared_lib.Declared,
    given: overrides_lib.Overrides,
) -> Iterator[str]:
  """Yields lines about settings and arrays that a model does not have."""
  yield from declared.notes
  yield from filter(None, [weights_lib.listed(
      {**given.model, **given.preprocess}.items(), start='overrides: ')])
  if found.left_out:
    groups = dict.fromkeys(
        _group(name, found.prefix) for name in found.left_out)
    yield (f'ignored: {len(found.left_out)} arrays that are not parameters: '
           + weights_lib.shortened(groups))


def _group(name: str, prefix: str) -> str:
  """Returns an array's name up to where it leaves the prefix, such as head.*"""
  end = 0
  for part in re.finditer('[^/.]+[/.]?', name):
    end = part.end()
    if not prefix.startswith(name[:end]):
      break
  return name[:end] + '*' * (end < len(name))


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
