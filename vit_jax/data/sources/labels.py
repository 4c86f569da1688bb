"""Labels of the declared kind (`data.target`) from columns of a table.

Classes are numbered in the sorted order of their names, by value if all are
integers, unless the file declares them.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any, Literal

from jaxtyping import Float32, Int32, Integer, Shaped
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.exceptions import UserError

_Rows = Integer[np.ndarray, 'rows']


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
  """Class indices, lists of them, or numbers [rows, targets] (missing: NaN).

  `names` are those of the classes or targets; without labels, there are none.
  """
  kind: Literal['single', 'multi', 'regression', 'none']
  values: Shaped[np.ndarray, 'rows ...'] | pa.ListArray
  names: tuple[str, ...] = ()

  def __getitem__(self, row: int) -> Any:
    label = self.values[row]
    if self.kind == 'multi':
      return label.values.to_numpy()
    return label if self.kind == 'regression' else int(label)

  def describe(self) -> str:
    """Returns a summary: 'single-label, 3 classes: cat, dog, emu'."""
    if self.kind == 'none':
      return 'no labels'
    if self.kind == 'regression':
      return f'regression of {", ".join(self.names)}'
    return (f'{self.kind}-label, {len(self.names):,} '
            f'class{"es" * (len(self.names) > 1)}: '
            f'{files.shorten(self.names, 4)}')


def parse(
    columns: Mapping[str, columns_lib.Column], rows: _Rows,
    config: columns_lib.LabelConfig, *, where: str,
    class_names: Sequence[str] | None = None,
) -> Labels:
  """Parses label columns; without any, there are no labels.

  Args:
    columns: label columns by name.
    rows: rows with labels, at least one, in order; others get any label.
    config: kind of the labels.
    where: names the file in errors.
    class_names: declared by the file; cells are class indices or names.

  Raises:
    protocol.NoLabels: if all labels are the same, or look like another kind.
    UserError: if cells are not labels of that kind.
  """
  if not columns:
    return Labels('none', np.zeros(rows[-1] + 1, np.uint8))
  cells = [_Cells(column.take(pa.array(rows)), rows,
                  f'column {name!r} of {where}')
           for name, column in columns.items()]
  if config.target == 'regression':
    found = Labels('regression', np.stack(
        [_parse_numbers(column) for column in cells], axis=1), tuple(columns))
  elif len(columns) > 1:
    found = _parse_flags(
        cells, tuple(columns), is_multi=config.target == 'multi')
  else:
    found = _parse_classes(cells[0], config, class_names)
  if len(rows) == rows[-1] + 1:
    return found
  place = np.zeros(rows[-1] + 1, np.int64)
  place[rows] = np.arange(len(rows))
  return dataclasses.replace(found, values=found.values.take(place, axis=0)
                             if isinstance(found.values, np.ndarray) else
                             found.values.take(pa.array(place)))


def _parse_classes(
    column: '_Cells', config: columns_lib.LabelConfig,
    class_names: Sequence[str] | None,
) -> Labels:
  """Parses one class per row, or lists of them."""
  if config.target == 'multi':
    items, row_of = split_cells(column.column, config, column.title)
    labels = _Cells(items, column.rows[row_of], column.title)
    names, indices = _number(labels, class_names)
    if pa.types.is_nested(column.column.type):
      _check_unlike_flags(labels, indices, names)
    return Labels('multi', to_lists(
        indices, np.bincount(row_of, minlength=len(column.rows))), names)
  if not (config.target or class_names) and (text := protocol.suggest(
      'question_labels', column.column, column.title,
      trained=bool(config.holdout))):
    raise protocol.NoLabels(text)
  names, indices = _number(column, class_names)
  # Data that are only evaluated on may have one class.
  if config.holdout and len(names) < 2:
    raise protocol.NoLabels(
        f'{column.title} has {len(indices):,} rows, all of the class '
        f'{names[0]}. A classifier needs two classes. Choose another column: '
        '--config.data.table.label=NAME.')
  return Labels('single', columns_lib.compact(indices), names)


@dataclasses.dataclass(frozen=True, eq=False)
class _Cells:
  """A label column, and the row of the table of each of its cells."""
  column: columns_lib.Column
  rows: Integer[np.ndarray, 'cells']
  title: str

  @functools.cached_property
  def encoded(self) -> tuple[list[Any], Integer[np.ndarray, 'cells']]:
    """Distinct cells, and the index of the cell of each row."""
    distinct, codes = columns_lib.encode(self.column)
    return [*map(columns_lib.clean, distinct)], codes

  def apply(
      self, function: Callable[[Any], Any], dtype: Any, *, expected: str,
  ) -> Shaped[np.ndarray, 'cells']:
    """Returns what a function returns for each cell; None is an error."""
    distinct, codes = self.encoded
    found = [function(cell) for cell in distinct]
    wrong = np.flatnonzero(np.array(
        [value is None for value in found], bool)[codes])
    if len(wrong):
      raise UserError(
          f'{len(wrong):,} of {len(codes):,} cells in {self.title} cannot be a '
          f'label, the first in row {self.rows[wrong[0]] + 1}: '
          + (repr(cell) if (cell := distinct[codes[wrong[0]]]) is not None
             else 'it is empty') + f', but {expected} was expected.')
    return np.array(found, dtype)[codes]


def _check_unlike_flags(
    cells: _Cells, indices: Int32[np.ndarray, 'cells'], names: Sequence[str],
) -> None:
  """Raises if a row has a label twice, as the list [0, 1, 0] has."""
  pairs, counts = np.unique(
      cells.rows * len(names) + indices, return_counts=True)
  for pair in pairs[counts > 1][:1]:
    row, label = divmod(int(pair), len(names))
    raise UserError(
        f'Row {row + 1} of {cells.title} has the label {names[label]!r} twice. '
        'Lists hold the classes of an image, not a 0 or 1 for each.')


def _number(
    cells: _Cells, class_names: Sequence[str] | None,
) -> tuple[tuple[str, ...], Int32[np.ndarray, 'cells']]:
  """Returns the class names, and the class index of each cell."""
  distinct, _ = cells.encoded
  if not distinct:
    raise UserError(f'{cells.title} holds no labels.')
  if class_names is None:
    return _number_names(cells)
  index = {columns_lib.clean(name): i for i, name in enumerate(class_names)}

  def find(cell: Any) -> int | None:
    # A number is an index, even if the names are numbers.
    found = columns_lib.to_integer(cell)
    found = index.get(cell, found) if isinstance(cell, str) else found
    return found if found in range(len(class_names)) else None

  return tuple(class_names), cells.apply(
      find, np.int32, expected=f'one of {len(class_names):,} classes that the '
      f'file declares, from 0: {files.shorten(class_names, 4)},')


def _number_names(
    cells: _Cells) -> tuple[tuple[str, ...], Int32[np.ndarray, 'cells']]:
  """Numbers the names of classes in their order."""
  distinct, codes = cells.encoded
  are_integers = None not in map(columns_lib.to_integer, distinct)

  def to_name(cell: Any) -> str | None:
    number = columns_lib.to_integer(cell)
    if not isinstance(cell, (str, int)) or (number or 0) < 0:
      return None
    return str(number if are_integers else cell)

  texts = cells.apply(
      to_name, object, expected='the name of a class or an integer from 0 '
      '(numbers: --config.data.target=regression; without a label: fill it in, '
      'or remove the row)')
  names = columns_lib.sort_names({*texts})
  index: dict[str | None, int] = {name: i for i, name in enumerate(names)}
  return tuple(names), np.array(
      [index[to_name(cell)] for cell in distinct], np.int32)[codes]


def split_cells(
    column: columns_lib.Column, config: columns_lib.LabelConfig, title: str,
) -> tuple[columns_lib.Column, Integer[np.ndarray, 'labels']]:
  """Returns the labels of all rows, without empty ones, and the row of each."""
  column = columns_lib.decode(column)
  if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
    if config.table.separator is None:
      raise UserError(
          f'data.target is multi, but {title} holds text. Name the separator '
          'of several labels in a cell, such as '
          "--config.data.table.separator='|'; or several columns of 0 and 1, "
          'one per class: --config.data.table.label=a,b')
    column = pc.split_pattern(column, config.table.separator)
  if pa.types.is_nested(column.type):
    row_of = pc.list_parent_indices(column).to_numpy()
    column = pc.list_flatten(column)
  else:  # One number per row.
    row_of = np.arange(len(column))
  kept = columns_lib.apply(
      column, lambda cell: columns_lib.clean(cell) is not None, bool)
  return column.filter(pa.array(kept)), row_of[kept]


def to_lists(
    values: Any, sizes: Integer[np.ndarray, 'rows']) -> pa.ListArray:
  """Returns lists of given sizes of consecutive values."""
  return pa.ListArray.from_arrays(
      np.append(0, np.cumsum(sizes)).astype(np.int32), values)


def _parse_numbers(cells: _Cells) -> Float32[np.ndarray, 'rows']:
  """Parses a column of numbers; empty cells are missing."""
  def to_number(cell: Any) -> float | None:
    found = np.nan if cell is None else columns_lib.to_number(cell)
    is_large = found is not None and abs(found) > np.finfo(np.float32).max
    return None if is_large else found

  found = cells.apply(
      to_number, np.float32, expected='a finite number or an empty cell')
  if np.isnan(found).all():
    raise UserError(f'{cells.title} is empty.')
  return found


def _parse_flags(
    columns: Sequence[_Cells], names: tuple[str, ...], *, is_multi: bool,
) -> Labels:
  """Parses one column of 0 and 1 per class."""
  flags = np.stack([cells.apply(
      columns_lib.to_flag, bool, expected='0 or 1, as several label columns '
      'are one class each (numbers: --config.data.target=regression)')
                    for cells in columns], axis=1)
  ones = flags.sum(axis=1)
  if is_multi:
    return Labels('multi', to_lists(
        np.nonzero(flags)[1].astype(np.int32), ones), names)
  if len(wrong := np.flatnonzero(ones != 1)):
    raise UserError(
        f'data.target is single, but row {columns[0].rows[wrong[0]] + 1} has a '
        f'1 in {ones[wrong[0]]} of {columns[0].title}, '
        f'{files.shorten(names[1:], 8)}. Use --config.data.target=multi.')
  return Labels('single', flags.argmax(axis=1).astype(np.int32), names)
