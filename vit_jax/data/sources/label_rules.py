"""What the labels of a table mean: told from the values, or as a person says.

`data.target` is 'single', 'multi' or 'regression'; by default it is told by
these rules, the first that holds:

  several columns, each 0 or 1      multi-label, a class for each column
    with exactly one 1 in each row  single-label
  several columns of numbers        regression, a target for each column
  a list in a cell                  multi-label
  `|` in any cell, or `;` in one of twenty, or a separator that is set
                                    multi-label
  numbers, one below 0 or not whole regression
  more than 100 different whole numbers, fewer than five rows of each
                                    regression
  anything else                     single-label

Classes are numbered in the sorted order of their names. Whole numbers from 0
on, of which at least half occur, are their own indices. What was understood is
printed when a run starts.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import re
from typing import Any, Literal

from jaxtyping import Float64, Int32, Int64, Shaped
import numpy as np

Kind = Literal['auto', 'single', 'multi', 'regression']

_SEPARATORS = ('|', ';')
_RARE = 0.05  # Less of the cells hold a ';' of another meaning.
_MANY, _FEW_EACH = 100, 5
_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?')
_WHOLE = re.compile(r'(-?(?:0|[1-9]\d*))(?:\.0*)?')  # '007' is a name.
_MISSING = frozenset({'', 'nan', 'na', 'n/a', 'null', 'none'})

Column = Sequence[Any]  # Text, numbers, lists or None.


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
  """Lists of class indices, of any lengths, end to end."""
  values: Int32[np.ndarray, 'labels']
  ends: Int64[np.ndarray, 'examples']

  def __len__(self) -> int:
    return len(self.ends)

  def __getitem__(self, index: int) -> Int32[np.ndarray, 'labels']:
    return self.values[self.ends[index - 1] if index else 0:self.ends[index]]


@dataclasses.dataclass(frozen=True, eq=False)
class Targets:
  """The labels of all rows, understood.

  Attributes:
    kind: 'single', 'multi' or 'regression'.
    labels: class indices [rows]; lists of them; or numbers [rows, targets],
      NaN where one is missing.
    num_classes: of regression, the number of targets.
    class_names: in order.
    targets: names of regression's targets.
  """
  kind: str
  labels: Shaped[np.ndarray, 'rows ...'] | Ragged
  num_classes: int
  class_names: tuple[str, ...] | None = None
  targets: tuple[str, ...] = ()

  def of(self, row: int) -> Any:
    """Returns the label of a row, as a source gives it."""
    label = self.labels[row]
    return int(label) if self.kind == 'single' else label

  def describe(self) -> str:
    """Returns what was understood: 'single-label, 3 classes: cat, dog, emu'."""
    if self.kind == 'regression':
      return f'regression of {", ".join(self.targets)}'
    names = self.class_names or ()
    shown = ', '.join(names[:4]) + ', ...' * (len(names) > 4)
    several = 'es' if self.num_classes > 1 else ''
    return (f'{self.kind}-label, {self.num_classes:,} class{several}'
            + f': {shown}' * bool(names))


def understand(
    columns: Mapping[str, Column], *, kind: Kind, separator: str | None,
    names: Sequence[str] | None = None, where: str,
) -> Targets:
  """Returns the labels of a table.

  Args:
    columns: those of labels, by name; all of a length that is not 0.
    kind: of target; 'auto' tells it by the rules above.
    separator: between the labels of a cell, or None to find it.
    names: of the classes, where the file says them; values are then indices
      or names.
    where: the file, for messages.

  Raises:
    ValueError: if the values are no labels of that kind.
  """
  columns = {name: [_clean(v) for v in column]
             for name, column in columns.items()}
  if kind == 'auto':
    kind = _guess(columns, separator, names, where)
  if kind == 'regression':
    return _regression(columns, where)
  if len(columns) > 1:
    return _from_flags(columns, kind, where)
  (column, values), = columns.items()
  what = f'column {column!r} of {where}'
  if kind == 'multi':
    return _multi(cells(values, separator), names, what)
  return _single(values, names, what)


def is_missing(value: Any) -> bool:
  """Whether a cell is empty."""
  return _clean(value) is None


def _clean(value: Any) -> Any:
  if isinstance(value, str):
    return value.strip() or None
  if isinstance(value, float) and np.isnan(value):
    return None
  return value


def numbers(values: Column) -> Float64[np.ndarray, 'rows'] | None:
  """Returns a column as numbers, NaN where empty, or None if it is none."""
  found = []
  for value in values:
    if value is None or (isinstance(value, str)
                         and value.strip().lower() in _MISSING):
      found.append(np.nan)
    elif isinstance(value, (int, float)) or (
        isinstance(value, str) and _NUMBER.fullmatch(value.strip())):
      found.append(float(value))
    else:
      return None
  array = np.array(found, np.float64)
  return None if np.isnan(array).all() else array


def are_flags(values: Column) -> bool:
  """Whether a column holds 0 and 1 alone: says of each row if it is so."""
  found = numbers(values)
  return found is not None and bool(np.isin(found, (0, 1)).all())


def _guess(
    columns: Mapping[str, Column], separator: str | None,
    names: Sequence[str] | None, where: str,
) -> Literal['single', 'multi', 'regression']:
  """Returns the kind of target by the module's rules."""
  if len(columns) > 1:
    kinds = {name: 'flags' if are_flags(values) else
             'numbers' if numbers(values) is not None else 'text'
             for name, values in columns.items()}
    if 'text' in kinds.values():
      raise ValueError(
          f'The label columns of {where} are of mixed kinds: {kinds}. Several '
          'columns are all 0 or 1 (a class each) or all numbers (regression). '
          'Name those that are meant: --config.data.table.label=a,b')
    if set(kinds.values()) == {'flags'}:
      ones = sum(numbers(v) for v in columns.values())  # type: ignore[misc]
      return 'single' if bool(np.all(ones == 1)) else 'multi'
    return 'regression'
  values, = columns.values()
  if separator is not None or any(isinstance(v, (list, tuple)) for v in values):
    return 'multi'
  if names is not None:
    return 'single'
  if _find_separator(values):
    return 'multi'
  found = numbers(values)
  return 'regression' if found is not None and _is_measured(found) else 'single'


def _is_measured(found: Float64[np.ndarray, 'rows']) -> bool:
  """Whether numbers are measured, and not numbers of classes."""
  found = found[~np.isnan(found)]
  if (found != np.round(found)).any() or (found < 0).any():
    return True
  distinct = len(np.unique(found))
  return distinct > _MANY and len(found) < _FEW_EACH * distinct


def _find_separator(values: Column) -> str | None:
  """Returns what separates the labels of a cell, if anything does."""
  for separator in _SEPARATORS:
    count = sum(isinstance(v, str) and separator in v for v in values)
    if count and (separator == '|' or count >= _RARE * len(values)):
      return separator
  return None


def cells(values: Column, separator: str | None) -> list[list[Any]]:
  """Returns the labels of each cell, of which there may be none."""
  separator = separator or _find_separator(values)
  found: list[list[Any]] = []
  for value in values:
    if isinstance(value, str) and separator:
      value = value.split(separator)
    several = value if isinstance(value, (list, tuple)) else [value]
    found.append([v for v in map(_clean, several) if v is not None])
  return found


def _regression(columns: Mapping[str, Column], where: str) -> Targets:
  arrays = []
  for name, values in columns.items():
    found = numbers(values)
    if found is None:
      strange = next((v for v in values if numbers([v]) is None and v), None)
      raise ValueError(
          f'Column {name!r} of {where} cannot be a target of regression: '
          + ('all of it is empty.' if strange is None else
             f'{strange!r} is no number.')
          + ' Name other columns (--config.data.table.label=a,b), or another '
          'kind (--config.data.target=single).')
    arrays.append(found)
  return Targets(
      'regression', np.stack(arrays, axis=1).astype(np.float32), len(columns),
      None, tuple(columns))


def _from_flags(
    columns: Mapping[str, Column], kind: Kind, where: str) -> Targets:
  """Returns labels of which each class has a column."""
  wrong = [name for name, values in columns.items() if not are_flags(values)]
  if wrong:
    raise ValueError(
        f'Several label columns of {where} must hold 0 and 1 alone, a class '
        f'each, but {", ".join(map(repr, wrong[:4]))} do not. Use '
        '--config.data.target=regression for numbers, or name one column '
        '(--config.data.table.label=NAME).')
  flags = np.stack([numbers(v) for v in columns.values()], axis=1) > 0  # type: ignore[misc]
  names, ones = tuple(columns), flags.sum(axis=1)
  if kind == 'multi':
    return Targets('multi', Ragged(np.nonzero(flags)[1].astype(np.int32),
                                   np.cumsum(ones, dtype=np.int64)),
                   len(names), names)
  if (ones != 1).any():
    row = int(np.flatnonzero(ones != 1)[0])
    raise ValueError(
        f'data.target is single, but row {row + 1} of {where} has a 1 in '
        f'{ones[row]} of the columns {", ".join(names[:8])}. Use '
        '--config.data.target=multi.')
  return Targets(
      'single', flags.argmax(axis=1).astype(np.int32), len(names), names)


def _multi(
    cells: list[list[Any]], names: Sequence[str] | None, what: str) -> Targets:
  labels, found = _number([v for cell in cells for v in cell], names, what)
  ends = np.cumsum([len(cell) for cell in cells], dtype=np.int64)
  return Targets('multi', Ragged(labels, ends), len(found), found)


def _single(
    values: Column, names: Sequence[str] | None, what: str) -> Targets:
  missing = [i for i, value in enumerate(values) if value is None]
  if missing:
    raise ValueError(
        f'{len(missing):,} of {len(values):,} rows have no label in {what} '
        f'(the first: row {_some([str(i + 1) for i in missing])}). Fill them '
        'in, or remove these rows.')
  strange = next((v for v in values if isinstance(v, (list, dict))), None)
  if strange is not None:
    raise ValueError(
        f'{what} must hold one label in each row, but {strange!r} is a '
        f'{type(strange).__name__}. Use --config.data.target=multi for lists.')
  labels, found = _number(values, names, what)
  if len(found) < 2:
    raise ValueError(
        f'{what} holds a single class, {found[0]!r}; a classifier needs two '
        'classes. Is it the column that is meant? '
        '(--config.data.table.label=NAME)')
  return Targets('single', labels, len(found), found)


def _number(
    values: Column, names: Sequence[str] | None, what: str,
) -> tuple[Int32[np.ndarray, 'values'], tuple[str, ...]]:
  """Returns the class index of each value, and the classes' names."""
  if not values:
    raise ValueError(f'{what} holds no label at all.')
  whole = [_whole(value) for value in values]
  if names is not None:
    return _by_names(values, whole, names, what), tuple(names)
  if None not in whole:
    found = np.array(whole, np.int64)
    distinct = np.unique(found)
    if distinct[0] >= 0 and 2 * len(distinct) >= distinct[-1] + 1:
      return (found.astype(np.int32),
              tuple(str(i) for i in range(int(distinct[-1]) + 1)))
    return (np.searchsorted(distinct, found).astype(np.int32),
            tuple(str(i) for i in distinct.tolist()))
  texts = [str(value) for value in values]
  classes = sorted(set(texts))
  if len(classes) == len(texts) > 2:
    raise ValueError(
        f'{what} cannot be a label: all its {len(texts):,} values differ '
        f'({_some(classes)}). Name the column that is one: '
        '--config.data.table.label=NAME.')
  index = {name: i for i, name in enumerate(classes)}
  return np.array([index[t] for t in texts], np.int32), tuple(classes)


def _whole(value: Any) -> int | None:
  if isinstance(value, bool):
    return None
  if isinstance(value, float):
    return int(value) if value.is_integer() else None
  if isinstance(value, int):
    return value
  match = isinstance(value, str) and _WHOLE.fullmatch(value)
  return int(match[1]) if match else None


def _by_names(
    values: Column, whole: Sequence[int | None], names: Sequence[str],
    what: str,
) -> Int32[np.ndarray, 'values']:
  """Returns indices of values that are indices, or names, of known classes."""
  index = {name: i for i, name in enumerate(names)}
  labels = [index.get(str(value), -1 if number is None else number)
            for value, number in zip(values, whole)]
  wrong = [v for v, i in zip(values, labels) if not 0 <= i < len(names)]
  if wrong:
    raise ValueError(
        f'{what} holds {wrong[0]!r}, but its file names {len(names):,} '
        f'classes, from 0: {_some(list(names))}.')
  return np.array(labels, np.int32)


def _some(names: Sequence[str]) -> str:
  return ', '.join(names[:4]) + ', ...' * (len(names) > 4)
