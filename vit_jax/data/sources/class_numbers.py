"""Numbering of classes by their names, the same in every source.

Classes are numbered in the sorted order of their names, by value if all are
integers. In tables, integers are class indices if at least half of the range
from 0 to the largest occurs.
"""

from collections.abc import Iterable, Sequence
import re
from typing import Any
import unicodedata

from jaxtyping import Int32
import numpy as np

from vit_jax.data import cells as cells_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol

_INTEGER = re.compile(r'(-?\d{1,18})(?:\.0*)?')
# '007' and numbers beyond 64 bits are names.
_WHOLE = re.compile(r'(-?(?:0|[1-9]\d{0,17}))(?:\.0*)?')


def compose(name: str) -> str:
  """Returns a class name in Unicode's form NFC.

  macOS writes 'é' as two characters, other systems as one.
  """
  return unicodedata.normalize('NFC', name)


def sort_names(names: Iterable[str]) -> list[str]:
  """Returns class names in the order of their indices.

  In every source, integers are sorted by value, '007' too; other names as text.
  """
  names = sorted(names)
  found = [_INTEGER.fullmatch(name) for name in names]
  numbers = [int(match[1]) for match in found if match]
  return names if len(numbers) < len(names) else [
      name for _, name in sorted(zip(numbers, names))]


def number(
    values: cells_lib.Column, class_names: Sequence[str] | None, what: str,
) -> tuple[Int32[np.ndarray, 'values'], tuple[str, ...]]:
  """Returns the class index of each value, and the class names."""
  if not values:
    raise ValueError(f'{what} holds no labels.')
  if class_names is not None:
    indices = _declared_indices(values.cells, class_names, what)
    return indices[values.codes], tuple(class_names)
  integers = [to_integer(value) for value in values.cells]
  if None not in integers:
    distinct, indices = np.unique(
        np.array(integers, np.int64), return_inverse=True)
    if distinct[0] >= 0 and 2 * len(distinct) >= distinct[-1] + 1:
      indices = distinct[indices]
      distinct = np.arange(distinct[-1] + 1)
    return indices.astype(np.int32)[values.codes], tuple(
        map(str, distinct.tolist()))
  names = sort_names({str(value) for value in values.cells})
  if len(names) == len(values) > 2:
    raise protocol.NoLabels(
        f'{what} cannot be a label: all its {len(values):,} values differ '
        f'({files.shorten(names)}). Choose another column: '
        '--config.data.table.label=NAME.')
  index = {name: i for i, name in enumerate(names)}
  return values.array(lambda value: index[str(value)], np.int32), tuple(names)


def to_integer(value: Any) -> int | None:
  if isinstance(value, bool):
    return None
  if isinstance(value, (int, float)):
    return int(value) if value % 1 == 0 and abs(value) < 2**63 else None
  match = isinstance(value, str) and _WHOLE.fullmatch(value)
  return int(match[1]) if match else None


def _declared_indices(
    values: Sequence[Any], class_names: Sequence[str], what: str,
) -> Int32[np.ndarray, 'values']:
  """Returns class indices of values that are declared names or indices."""
  index = {compose(name): i for i, name in enumerate(class_names)}
  indices = []
  for value in values:
    # A number is an index, even if the names are numbers.
    is_number = isinstance(value, (int, float))
    number = None if is_number else index.get(str(value))
    number = to_integer(value) if number is None else number
    if number is None or not 0 <= number < len(class_names):
      raise ValueError(
          f'{what} holds {value!r}, but its file declares '
          f'{len(class_names):,} classes, from 0: '
          f'{files.shorten(class_names, 4)}.')
    indices.append(number)
  return np.array(indices, np.int32)
