"""Interpretation of label columns: classes, lists of classes, or numbers.

`data.target` is 'single', 'multi', 'regression' or 'none'; 'auto' infers it by
the rules in docs/kinds.md.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
import dataclasses
import re
from typing import Any, Literal

from jaxtyping import Bool, Float, Float64, Int32, Integer, Shaped
import numpy as np

from vit_jax.data import cells as cells_lib
from vit_jax.data import shared
from vit_jax.data.sources import class_numbers
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol

Kind = Literal['auto', 'single', 'multi', 'regression', 'none']
Column = Sequence[Any]  # Text, numbers, lists or None.

_SEPARATORS = ('|', ';')
_MIN_SEPARATED = 0.05  # In a smaller fraction of cells, ';' is part of a name.
_MAX_CLASSES, _ROWS_PER_CLASS = 100, 5
_MAX_MISTYPED = 0.1  # Share of cells of measurements that are not numbers.
_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?')
# In numbers, and in splits that hold nothing else, these are missing labels;
# beside other names, 'none' is a class.
_MISSING_WORDS = frozenset({'nan', 'na', 'n/a', 'null', 'none'})
MISSING_MARKS = _MISSING_WORDS | {'-1'}


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
  """Lists of class indices of different lengths, concatenated."""
  values: Int32[np.ndarray, 'labels']
  ends: Integer[np.ndarray, 'examples']

  def __len__(self) -> int:
    return len(self.ends)

  def __getitem__(self, index: int) -> Int32[np.ndarray, 'labels']:
    return self.values[self.ends[index - 1] if index else 0:self.ends[index]]


@dataclasses.dataclass(frozen=True, eq=False)
class ParsedLabels:
  """Class indices, lists of them, or numbers [rows, targets] (missing: NaN)."""
  kind: Kind
  values: Shaped[np.ndarray, 'rows ...'] | Ragged
  num_classes: int
  class_names: tuple[str, ...] | None = None
  targets: tuple[str, ...] = ()

  def __getitem__(self, row: int) -> Any:
    label = self.values[row]
    return int(label) if self.kind in ('single', 'none') else np.asarray(label)

  def compact(self) -> 'ParsedLabels':
    """Returns the same labels in few bytes, which processes share."""
    if isinstance(self.values, Ragged):
      values: Any = Ragged(shared.share(self.values.values), shared.share(
          shared.compact(self.values.ends)))
    else:
      values = shared.share(self.values if self.kind == 'regression' else
                            shared.compact(self.values))
    return dataclasses.replace(self, values=values)

  def describe(self) -> str:
    """Returns a summary: 'single-label, 3 classes: cat, dog, emu'."""
    if self.kind == 'none':
      return 'no labels'
    if self.kind == 'regression':
      return f'regression of {", ".join(self.targets)}' + _describe_flags(
          np.asarray(self.values))
    plural = 'es' if self.num_classes > 1 else ''
    count = f'{self.kind}-label, {self.num_classes:,} class{plural}'
    return ': '.join(filter(None, [
        count, files.shorten(self.class_names or (), 4)]))


def parse_labels(
    columns: Mapping[str, Column], *, kind: Kind, separator: str | None,
    class_names: Sequence[str] | None = None, where: str,
) -> ParsedLabels:
  """Parses the label columns of a table, which have at least one row.

  `separator` separates the labels of a cell; None detects it. With
  `class_names`, declared by the file, cells are class indices or names. `where`
  names the file in errors.

  Raises:
    protocol.NoLabels: if all labels are the same, or all differ.
    ValueError: if cells are not labels of that kind.
  """
  cleaned = {name: cells_lib.Column.of(column).map(clean)
             for name, column in columns.items()}
  if kind == 'auto':
    kind = _infer_kind(cleaned, separator, class_names, where)
  if kind == 'regression':
    return _parse_numbers(cleaned, where)
  if len(columns) > 1:
    return _parse_flags(cleaned, kind, where)
  (column, values), = cleaned.items()
  what = f'column {column!r} of {where}'
  if kind == 'single':
    return _parse_single(values, class_names, what)
  items, ends = split_cells(values, separator).flatten()
  indices, names = class_numbers.number(items, class_names, what)
  return ParsedLabels('multi', Ragged(indices, ends), len(names), names)


def _describe_flags(values: Float[np.ndarray, 'rows targets']) -> str:
  """Returns how numbers that may be flags become classes; '' for others."""
  several = values.shape[1] > 1
  target = 'multi' if several else 'single'
  if np.isin(values, (-1, 1)).all():
    return f' (only -1 and 1: classes if data.target={target})'
  if several and (np.isin(values, (-1, 0, 1)) | np.isnan(values)).all():
    return (' (all cells are -1, 0, 1 or empty: to train classes, replace -1 '
            'and empty cells by 0 or 1)')
  return ''


def is_missing(value: Any, *, marks: Collection[str] = ()) -> bool:
  """Whether a label is empty, NaN or one of `marks`, or a list of these."""
  return all(text in marks for text in _texts(value))


def find_missing_marks(train: Sequence[Column]) -> frozenset[str]:
  """Returns the marks that mean a missing label, given the columns of `train`.

  A mark in `train` is a label, but a word in a column of numbers is not.
  """
  found = {text for column in map(cells_lib.Column.of, train)
           for cell in column.cells for text in _texts(cell)}
  if all(numbers(column) is not None for column in train):
    found -= _MISSING_WORDS
  return MISSING_MARKS - found


def _texts(value: Any) -> list[str]:
  """Returns the labels of a cell as text in lower case; [] if it is empty."""
  if isinstance(value, np.ndarray):
    value = value.tolist()
  if isinstance(value, (list, tuple)):
    return [text for item in value for text in _texts(item)]
  value = clean(value)
  if value is None:
    return []
  number = class_numbers.to_integer(value)
  return [str(value if number is None else number).lower()]


def clean(value: Any) -> Any:
  """Returns a cell without surrounding spaces; None if it is empty or NaN."""
  if isinstance(value, str):
    return class_numbers.compose(value.strip()) or None
  return None if isinstance(value, float) and np.isnan(value) else value


def numbers(values: Column) -> Float64[np.ndarray, 'rows'] | None:
  """Returns a column as numbers, NaN where empty; None if it has no numbers."""
  column = cells_lib.Column.of(values)
  array = np.empty(len(column.cells))
  for code, value in enumerate(column.cells):
    text = '' if value is None else str(value).strip().lower()
    if not text or text in _MISSING_WORDS:
      array[code] = np.nan
    elif isinstance(value, (int, float)) or (
        isinstance(value, str) and _NUMBER.fullmatch(text)):
      # Through text: float() of an integer beyond 1e308 raises OverflowError.
      array[code] = float(text if type(value) is int else value)
    else:
      return None
  return None if np.isnan(array).all() else array[column.codes]


def flags(
    columns: Iterable[Column], kind: Kind = 'auto',
) -> Bool[np.ndarray, 'rows classes'] | None:
  """Returns columns of 0 and 1 (if 'multi', also of -1 and 1) as booleans.

  Returns None if they hold anything else.
  """
  parsed = [numbers(values) for values in columns]
  if any(array is None for array in parsed):
    return None
  stacked = np.stack(parsed, axis=1)  # type: ignore[arg-type]
  pairs = ((0, 1), (-1, 1))[:1 + (kind == 'multi')]
  is_pair = any(np.isin(stacked, pair).all() for pair in pairs)
  return stacked > 0 if is_pair else None


def split_cells(values: Column, separator: str | None) -> cells_lib.Column:
  """Returns the list of labels in each cell, possibly empty."""
  column = cells_lib.Column.of(values)
  separator = separator or _find_separator(column)

  def split(value: Any) -> list[Any]:
    if isinstance(value, str) and separator:
      value = value.split(separator)
    items = value if isinstance(value, (list, tuple)) else [value]
    return [v for v in map(clean, items) if v is not None]

  return column.map(split)


def _infer_kind(
    columns: Mapping[str, cells_lib.Column], separator: str | None,
    class_names: Sequence[str] | None, where: str,
) -> Kind:
  if len(columns) > 1:
    found = flags(columns.values())
    if found is not None:
      return 'single' if (found.sum(axis=1) == 1).all() else 'multi'
    texts = [name for name, of in columns.items() if numbers(of) is None]
    if texts:
      raise ValueError(
          f'The label columns {", ".join(texts)} of {where} hold text. '
          'Expected columns of 0 and 1 (one class each) or of numbers '
          '(regression). Choose columns: --config.data.table.label=a,b')
    return 'regression'
  values, = columns.values()
  if separator is not None or any(
      isinstance(v, (list, tuple)) for v in values.cells):
    return 'multi'
  if class_names is not None:
    return 'single'
  if _find_separator(values):
    return 'multi'
  parsed = numbers(values)
  if parsed is None:
    _check_mistyped(values, where)
    return 'single'
  return 'regression' if _are_measurements(parsed) else 'single'


def _check_mistyped(values: cells_lib.Column, where: str) -> None:
  """Raises if few cells of a column of measurements are not numbers."""
  texts = values.where(lambda value: numbers([value]) is None
                       and not is_missing(value, marks=_MISSING_WORDS))
  if not 0 < len(texts) <= _MAX_MISTYPED * len(values):
    return
  rest = numbers(values.take(np.setdiff1d(np.arange(len(values)), texts)))
  if rest is not None and _are_measurements(rest):
    raise ValueError(
        f'The labels of {where} are numbers, except {len(texts):,} of '
        f'{len(values):,}; the first is {values[texts[0]]!r} in row '
        f'{texts[0] + 1}. Correct them, or leave them empty. If the numbers '
        'are names of classes, use --config.data.target=single.')


def _are_measurements(values: Float64[np.ndarray, 'rows']) -> bool:
  """Whether numbers are measurements rather than class indices."""
  values = values[~np.isnan(values)]
  if (values != np.round(values)).any() or (values < 0).any():
    return True
  distinct = len(np.unique(values))
  return distinct > _MAX_CLASSES and len(values) < _ROWS_PER_CLASS * distinct


def _find_separator(values: cells_lib.Column) -> str | None:
  rows = np.bincount(values.codes, minlength=len(values.cells)).tolist()
  for separator in _SEPARATORS:
    count = sum(number for v, number in zip(values.cells, rows)
                if isinstance(v, str) and separator in v)
    if count and (separator == '|' or count >= _MIN_SEPARATED * len(values)):
      return separator
  return None


def _parse_numbers(
    columns: Mapping[str, cells_lib.Column], where: str) -> ParsedLabels:
  arrays = []
  for name, values in columns.items():
    parsed = numbers(values)
    if parsed is None:
      wrong = next((v for v in values.cells if v and numbers([v, 0]) is None),
                   None)
      raise ValueError(
          f'Column {name!r} of {where} cannot be a regression target: '
          + ('it is empty.' if wrong is None else f'{wrong!r} is not a number.')
          + ' Choose other columns (--config.data.table.label=a,b) or another '
          'kind of label (--config.data.target=single).')
    arrays.append(parsed)
  stacked = np.stack(arrays, axis=1)
  for row, target in np.argwhere(np.abs(stacked) > np.finfo(np.float32).max):
    raise ValueError(
        f'Column {list(columns)[target]!r} of {where} holds '
        f'{stacked[row, target]} in row {row + 1}, which is beyond float32. '
        'Rescale the column.')
  return ParsedLabels(
      'regression', stacked.astype(np.float32), len(columns),
      targets=tuple(columns))


def _parse_flags(
    columns: Mapping[str, cells_lib.Column], kind: Kind, where: str,
) -> ParsedLabels:
  """Parses one column of 0 and 1 per class."""
  found, names = flags(columns.values(), kind), tuple(columns)
  if found is None:
    wrong = [name for name, of in columns.items() if flags([of]) is None]
    raise ValueError(
        f'Several label columns of {where} must hold 0 and 1 only'
        + ', or all of them -1 and 1' * (kind == 'multi') + ', but '
        f'{files.shorten(map(repr, wrong))} do not. Use '
        '--config.data.target=regression for numbers, or one label column '
        '(--config.data.table.label=NAME).')
  ones = found.sum(axis=1)
  indices = np.nonzero(found)[1].astype(np.int32)  # Row by row.
  if kind == 'multi':
    return ParsedLabels(
        'multi', Ragged(indices, np.cumsum(ones)), len(names), names)
  if (ones != 1).any():
    row = int(np.flatnonzero(ones != 1)[0])
    raise ValueError(
        f'data.target is single, but row {row + 1} of {where} has a 1 in '
        f'{ones[row]} of the columns {files.shorten(names, 8)}. Use '
        '--config.data.target=multi.')
  return ParsedLabels('single', indices, len(names), names)


def _parse_single(
    values: cells_lib.Column, class_names: Sequence[str] | None, what: str,
) -> ParsedLabels:
  missing = values.where(lambda value: value is None)
  if len(missing):
    raise ValueError(
        f'{len(missing):,} of {len(values):,} rows have no label in {what} '
        f'(the first: row {missing[0] + 1}). Fill them in, or remove these '
        'rows.')
  wrong = next((v for v in values.cells if isinstance(v, (list, dict))), None)
  if wrong is not None:
    raise ValueError(
        f'{what} must hold one label per row, but {wrong!r} is a '
        f'{type(wrong).__name__}. Use --config.data.target=multi for lists.')
  indices, names = class_numbers.number(values, class_names, what)
  if len(names) < 2:
    raise protocol.NoLabels(
        f'{what} holds a single class, {names[0]!r}; a classifier needs two '
        'classes. Check the label column (--config.data.table.label=NAME).')
  return ParsedLabels('single', indices, len(names), names)
