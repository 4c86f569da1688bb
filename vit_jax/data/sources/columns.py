"""Settings of data in files, and columns of tables as Arrow arrays."""

from collections.abc import Callable, Iterable, Sequence
import ctypes
import dataclasses
import decimal
import math
import re
from typing import Any, Literal, TypeAlias
import unicodedata

from jaxtyping import Bool, Integer, Shaped
import numpy as np
import pyarrow as pa

Kind = Literal['', 'single', 'multi', 'regression', 'masks', 'none']
Column: TypeAlias = pa.Array | pa.ChunkedArray

HOLDOUT = 0.1  # Default of `data.holdout`.
IGNORED = 'data.target is none: labels are ignored.'
PATHS, LABEL, SPLIT = ('file_name', 'path'), 'label', 'split'  # Usual names.

_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?')
_INTEGER = re.compile(r'-?\d{1,18}')
# As pandas writes them beside empty cells; '007' is a name.
_WHOLE = re.compile(r'(-?(?:0|[1-9]\d{0,17}))(?:\.0*)?')


@dataclasses.dataclass(frozen=True)
class TableConfig:
  """The config section `data.table`: columns with other names than usual.

  Attributes:
    path: column of image paths, by default `file_name` or `path`; in Parquet,
      of images that the file does not declare.
    label: label column, by default `label`; several, separated by commas, are
      one class or one target each. In a WebDataset tar, a key of the JSON
      member.
    split: column with the split of each row, by default `split`, if there is
      one.
    separator: separator between several labels in a cell.
    folder: folder that relative image paths start from; default: that of the
      table.
    suffix: appended to each image path, such as '.jpg'.
  """
  path: str | None = None
  label: str | tuple[str, ...] | None = None
  split: str | None = None
  separator: str | None = None
  folder: str = ''
  suffix: str = ''

  @property
  def labels(self) -> tuple[str, ...]:
    """Names of the label columns; () if not configured."""
    if isinstance(self.label, str):
      return tuple(name.strip() for name in self.label.split(','))
    return self.label or ()


@dataclasses.dataclass(frozen=True)
class LabelConfig:
  """The settings `data.target`, `table`, `group`, ... that apply to files.

  With a `holdout` of 0, data without splits are all `train`. Without a
  `target`, it is 'single', but labels that look like another kind are an error.
  """
  target: Kind = ''
  table: TableConfig = TableConfig()
  holdout: float = HOLDOUT
  group: str = ''
  divided_groups: Literal['error', 'allow'] = 'error'


DEFAULT = LabelConfig()


def decode(column: Column) -> pa.Array:
  """Returns a column in one piece, without a dictionary."""
  if isinstance(column, pa.ChunkedArray):
    column = column.combine_chunks()
  return (column.dictionary_decode() if pa.types.is_dictionary(column.type)
          else column)


def encode(column: Column) -> tuple[list[Any], Integer[np.ndarray, 'rows']]:
  """Returns the distinct cells of a column, and the number of that of each row.

  A cell that is missing is None.

  Raises:
    ValueError: if the cells are lists.
  """
  column = decode(column)
  if pa.types.is_nested(column.type):
    raise ValueError(
        f'A column holds lists or objects ({column.type}), but one value per '
        'row was expected. Several classes: --config.data.target=multi.')
  column = column.dictionary_encode('encode')
  return column.dictionary.to_pylist(), column.indices.to_numpy()


def of_codes(
    cells: Sequence[str | None], codes: Integer[np.ndarray, 'rows'],
) -> pa.DictionaryArray:
  """Returns a column with the cell of each code."""
  return pa.array(cells, pa.string()).dictionary_encode().take(pa.array(codes))


def texts(items: Iterable[str]) -> pa.Array:
  """Returns a column of paths or other texts, in one buffer.

  Raises:
    ValueError: if a name of a file is not Unicode.
  """
  try:
    return pa.array(items, pa.large_string())
  except UnicodeEncodeError as error:
    raise ValueError(
        f'{error.object!r} is not Unicode text. Rename the file.') from error


def apply(
    column: Column, function: Callable[[Any], Any], dtype: Any,
) -> Shaped[np.ndarray, 'rows']:
  """Returns what a function returns for each cell; it sees equal ones once."""
  cells, codes = encode(column)
  return np.array([function(cell) for cell in cells], dtype)[codes]


def are_filled(
    column: Column, *, empty: Sequence[Any] = (None,),
) -> Bool[np.ndarray, 'rows']:
  """Returns whether the cell of each row is none of the `empty` ones."""
  if pa.types.is_nested(column.type):
    return np.array([bool(cell) for cell in column.to_pylist()], bool)
  return apply(column, lambda cell: clean(cell) not in empty, bool)


def compact(numbers: Integer[np.ndarray, '*shape']) -> np.ndarray:
  """Returns numbers from 0 in the smallest type."""
  return numbers.astype(np.min_scalar_type(numbers.max(initial=0)), copy=False)


def release_memory() -> None:
  """Returns memory to the system that only opening a dataset needed."""
  pa.default_memory_pool().release_unused()
  if hasattr(libc := ctypes.CDLL(None), 'malloc_trim'):  # Of glibc.
    libc.malloc_trim(0)


def clean(cell: Any) -> Any:
  """Returns a cell without surrounding spaces; None if it is empty or NaN.

  Text is in Unicode's form NFC: macOS writes 'é' as two characters. A float
  without fraction, as pandas writes integers beside empty cells, is an integer.
  """
  if isinstance(cell, str):
    return unicodedata.normalize('NFC', cell.strip()) or None
  if isinstance(cell, float):
    if math.isnan(cell):
      return None
    return int(cell) if cell.is_integer() else cell
  return cell


def to_integer(cell: Any) -> int | None:
  """Returns a clean cell as an integer; None for other text, such as '007'."""
  if isinstance(cell, str) and (match := _WHOLE.fullmatch(cell)):
    return int(match[1])
  return cell if type(cell) is int else None


def to_number(cell: Any) -> float | None:
  """Returns a clean cell as a number; None for others, such as '1_000'."""
  is_number = _NUMBER.fullmatch(cell) if isinstance(cell, str) else (
      isinstance(cell, (int, float, decimal.Decimal)))
  return float(cell) if is_number else None


def to_flag(cell: Any) -> bool | None:
  """Returns a cell of 0 or 1 as a truth value; None for others."""
  if isinstance(cell, bool):
    return cell
  return {0: False, 1: True}.get(to_integer(clean(cell)))  # type: ignore


def sort_names(names: Iterable[str]) -> list[str]:
  """Returns class names in the order of their indices, the same in any source.

  Integers are sorted by value, '007' too; other names as text.
  """
  names = sorted(names)
  if all(map(_INTEGER.fullmatch, names)):
    names.sort(key=int)
  return names
