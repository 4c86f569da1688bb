"""Labels of the declared kind (`data.target`) from columns of a table.

Classes are numbered in the sorted order of their names, by value if all are
integers, unless the file declares them.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
from typing import Any, Literal

from jaxtyping import Int32, Integer, Shaped
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.sources import suggest

_Rows = Integer[np.ndarray, 'rows']


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
  """Lists of class indices of different lengths, concatenated."""
  values: Int32[np.ndarray, 'labels']
  ends: Integer[np.ndarray, 'examples']

  @classmethod
  def of(
      cls, values: Integer[np.ndarray, 'labels'],
      row_of: Integer[np.ndarray, 'labels'], num_rows: int,
  ) -> 'Ragged':
    """Returns the labels of rows, which come in the order of the rows."""
    return cls(values.astype(np.int32), columns_lib.compact(
        np.cumsum(np.bincount(row_of, minlength=num_rows))))

  def __len__(self) -> int:
    return len(self.ends)

  def __getitem__(self, index: int) -> Int32[np.ndarray, 'labels']:
    return self.values[self.ends[index - 1] if index else 0:self.ends[index]]


@dataclasses.dataclass(frozen=True, eq=False)
class ParsedLabels:
  """Class indices, lists of them, or numbers [rows, targets] (missing: NaN)."""
  kind: Literal['single', 'multi', 'regression', 'none']
  values: Shaped[np.ndarray, 'rows ...'] | Ragged
  num_classes: int
  class_names: tuple[str, ...] | None = None
  targets: tuple[str, ...] = ()

  def __getitem__(self, row: int) -> Any:
    label = self.values[row]
    return int(label) if self.kind in ('single', 'none') else np.asarray(label)

  def describe(self) -> str:
    """Returns a summary: 'single-label, 3 classes: cat, dog, emu'."""
    if self.kind == 'none':
      return 'no labels'
    if self.kind == 'regression':
      return f'regression of {", ".join(self.targets)}'
    plural = 'es' if self.num_classes > 1 else ''
    count = f'{self.kind}-label, {self.num_classes:,} class{plural}'
    return ': '.join(filter(None, [
        count, files.shorten(self.class_names or (), 4)]))


def none(count: int) -> ParsedLabels:
  """Returns the labels of images without any."""
  return ParsedLabels('none', np.zeros(count, np.uint8), 1)


def parse(
    columns: Mapping[str, columns_lib.Column], rows: _Rows,
    config: columns_lib.LabelConfig, *, where: str,
    class_names: Sequence[str] | None = None, are_indices: bool = False,
    row_numbers: _Rows | None = None,
) -> ParsedLabels:
  """Parses the label columns in some rows of a table.

  Args:
    columns: label columns by name.
    rows: rows with labels, at least one.
    config: kind of the labels.
    where: names the file in errors.
    class_names: declared by the file; cells are class indices or names.
    are_indices: whether integers are class indices, not names of classes.
    row_numbers: number of each row in the file, from 0; default: rows are
      those of the file.

  Raises:
    protocol.NoLabels: if all labels are the same, or all differ.
    ValueError: if cells are not labels of that kind.
  """
  lines = rows if row_numbers is None else row_numbers[rows]
  found = {name: (column.take(pa.array(rows)), _What(name, where, lines))
           for name, column in columns.items()}
  if config.target == 'regression':
    return _parse_numbers(found)
  if len(found) > 1:
    return _parse_flags(found, config.target)
  (column, what), = found.values()
  if config.target == 'multi':
    items, row_of = _split_cells(column, config, what)
    what = dataclasses.replace(what, rows=lines[row_of])
  else:
    if class_names is None and not are_indices:
      suggest.check_single(column, config, what=what.title)
    if pa.types.is_nested(column.type):
      raise ValueError(
          f'{what.title} holds lists, but one class per image was expected. '
          'Use --config.data.target=multi.')
    items, row_of = column, None
  cells, codes = columns_lib.encode(items)
  cells = [columns_lib.clean(cell) for cell in cells]
  names, numbers = _number(cells, codes, what, class_names, are_indices)
  indices = columns_lib.compact(np.array(numbers, np.int32))[codes]
  if row_of is not None:
    if pa.types.is_nested(column.type):
      _check_unlike_flags(indices, names, what)
    return ParsedLabels('multi', Ragged.of(
        indices, row_of, len(rows)), len(names), names)
  # Data that are only evaluated on may have one class, or one image of each.
  if len(names) < 2 and config.holdout:
    raise protocol.NoLabels(
        f'{what.title} holds a single class, {names[0]!r}; a classifier needs '
        'two classes. Check the label column (--config.data.table.label=NAME).')
  if not config.target and config.holdout and (
      len({*numbers}) == len(rows) > 2 and not (class_names or are_indices)):
    raise protocol.NoLabels(
        f'{what.title} cannot be a label: all its {len(rows):,} values differ '
        f'({files.shorten(names)}). Choose another column: '
        '--config.data.table.label=NAME.')
  return ParsedLabels('single', indices, len(names), names)


@dataclasses.dataclass(frozen=True)
class _What:
  """A label column, and the row of the table of each of its parsed cells."""
  name: str
  where: str
  rows: _Rows

  @property
  def title(self) -> str:
    return f'column {self.name!r} of {self.where}'


def _check_cells(
    cells: Sequence[Any], are_valid: Iterable[bool],
    codes: Integer[np.ndarray, '_'], what: _What, *, expected: str,
) -> None:
  """Raises if a cell is not valid; names the first row that has one."""
  wrong = ~np.array([*are_valid], bool)[codes]
  if wrong.any():
    at = np.flatnonzero(wrong)
    raise ValueError(
        f'{len(at):,} of {len(wrong):,} cells in {what.title} cannot be a '
        f'label, the first in row {what.rows[at[0]] + 1}: '
        f'{cells[codes[at[0]]]!r}, but {expected} was expected.')


def _check_unlike_flags(
    indices: Integer[np.ndarray, 'labels'], names: Sequence[str], what: _What,
) -> None:
  """Raises if a list has a label twice, as [0, 1, 0] has."""
  pairs = what.rows * len(names) + indices
  first = np.unique(pairs, return_index=True)[1]
  if len(first) < len(pairs):
    twice = np.setdiff1d(np.arange(len(pairs)), first)[0]
    raise ValueError(
        f'Row {what.rows[twice] + 1} of {what.title} has the label '
        f'{names[indices[twice]]!r} twice. Lists hold the classes of an image, '
        'not a 0 or 1 for each.')


def _number(
    cells: Sequence[Any], codes: Integer[np.ndarray, '_'], what: _What,
    class_names: Sequence[str] | None, are_indices: bool,
) -> tuple[tuple[str, ...], list[int]]:
  """Returns the class names, and the class index of each distinct cell."""
  if not cells:
    raise ValueError(f'{what.title} holds no labels.')
  integers = [columns_lib.to_integer(cell) for cell in cells]
  if class_names is not None:
    index = {columns_lib.clean(name): i for i, name in enumerate(class_names)}
    # A number is an index, even if the names are numbers.
    found = [index.get(cell, number) if isinstance(cell, str) else number
             for cell, number in zip(cells, integers)]
    _check_cells(
        cells, (i is not None and 0 <= i < len(class_names) for i in found),
        codes, what, expected=f'one of {len(class_names):,} classes that the '
        f'file declares, from 0: {files.shorten(class_names, 4)},')
    return tuple(class_names), found  # type: ignore[return-value]
  _check_cells(
      cells, (isinstance(cell, (str, int)) and not (number or 0) < 0
              for cell, number in zip(cells, integers)), codes, what,
      expected='the name of a class or an integer from 0 (numbers: '
      '--config.data.target=regression; without a label: fill it in, or remove '
      'the row)')
  if are_indices and None not in integers:
    return tuple(map(str, range(max(integers) + 1))), integers  # type: ignore
  texts = [*map(str, cells if None in integers else integers)]
  names = columns_lib.sort_names({*texts})
  index = {name: i for i, name in enumerate(names)}
  return tuple(names), [index[text] for text in texts]


def _split_cells(
    column: columns_lib.Column, config: columns_lib.LabelConfig, what: _What,
) -> tuple[columns_lib.Column, Integer[np.ndarray, 'labels']]:
  """Returns the labels of all rows, without empty ones, and the row of each."""
  if isinstance(column, pa.ChunkedArray):
    column = column.combine_chunks()
  if pa.types.is_dictionary(column.type):
    column = column.dictionary_decode()
  if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
    if config.table.separator is None:
      raise ValueError(
          f'data.target is multi, but {what.title} holds text. Name the '
          'separator of several labels in a cell, such as '
          "--config.data.table.separator='|'; or several columns of 0 and 1, "
          'one per class: --config.data.table.label=a,b')
    column = pc.split_pattern(column, config.table.separator)
  if not pa.types.is_nested(column.type):  # One number per row.
    column = pa.ListArray.from_arrays(
        np.arange(len(column) + 1, dtype=np.int32), column)
  sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(
      zero_copy_only=False)
  items = column.flatten()
  cells, codes = columns_lib.encode(items)
  kept = np.array([columns_lib.clean(cell) is not None for cell in cells],
                  bool)[codes]
  return items.filter(pa.array(kept)), np.repeat(
      np.arange(len(sizes)), sizes)[kept]


def join_rows(
    column: columns_lib.Column, of: Integer[np.ndarray, 'rows'],
    config: columns_lib.LabelConfig, *, where: str,
) -> pa.Array:
  """Returns the lists of labels of images, given the image of each row."""
  items, row_of = _split_cells(column, config, _What('label', where, of))
  owner = of[row_of]
  _, codes = columns_lib.encode(items)
  # Each label of an image once, in the order of its rows.
  kept = np.sort(np.unique(owner * (codes.max(initial=0) + 1) + codes,
                           return_index=True)[1])
  kept = kept[np.argsort(owner[kept], kind='stable')]
  sizes = np.bincount(owner[kept], minlength=of.max() + 1)
  return pa.LargeListArray.from_arrays(
      np.append(0, np.cumsum(sizes)), items.take(pa.array(kept)))


def _parse_numbers(
    columns: Mapping[str, tuple[columns_lib.Column, _What]]) -> ParsedLabels:
  """Parses one column of numbers per target; empty cells are missing."""
  def parse_cell(cell: Any) -> float | None:
    cell = columns_lib.clean(cell)
    try:
      number = np.nan if cell is None else float(cell)
    except (TypeError, ValueError):
      return None
    if isinstance(cell, str) and not columns_lib.NUMBER.fullmatch(cell):
      return None  # Such as '1_000' and 'nan'.
    return number if abs(number) <= np.finfo(np.float32).max or (
        np.isnan(number)) else None

  arrays = []
  for column, what in columns.values():
    cells, codes = columns_lib.encode(column)
    numbers = [*map(parse_cell, cells)]
    _check_cells(
        cells, (number is not None for number in numbers), codes, what,
        expected='a finite number or an empty cell')
    array = np.array(numbers, np.float32)[codes]
    if np.isnan(array).all():
      raise ValueError(f'{what.title} is empty.')
    arrays.append(array)
  return ParsedLabels('regression', np.stack(arrays, axis=1), len(columns),
                      targets=tuple(columns))


def _parse_flags(
    columns: Mapping[str, tuple[columns_lib.Column, _What]],
    kind: columns_lib.Kind,
) -> ParsedLabels:
  """Parses one column of 0 and 1 per class."""
  flags = []
  for column, what in columns.values():
    cells, codes = columns_lib.encode(column)
    flag_of = [columns_lib.to_flag(cell) for cell in cells]
    _check_cells(
        cells, (flag is not None for flag in flag_of), codes, what,
        expected='0 or 1, as several label columns are one class each '
        '(numbers: --config.data.target=regression)')
    flags.append(np.array(flag_of, bool)[codes])
  found, names = np.stack(flags, axis=1), tuple(columns)
  ones = found.sum(axis=1)
  row_of, indices = np.nonzero(found)  # Row by row.
  if kind == 'multi':
    return ParsedLabels('multi', Ragged.of(
        indices, row_of, len(found)), len(names), names)
  if (ones != 1).any():
    row = int(np.flatnonzero(ones != 1)[0])
    what = columns[names[0]][1]
    raise ValueError(
        f'data.target is single, but row {what.rows[row] + 1} of {what.where} '
        f'has a 1 in {ones[row]} of the columns {files.shorten(names, 8)}. Use '
        '--config.data.target=multi.')
  return ParsedLabels(
      'single', indices.astype(np.int32), len(names), names)
