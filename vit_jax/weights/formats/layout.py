"""Tables that rename and rearrange arrays, in both directions.

A row maps one kind of parameter between another codebase and ours:

    Row('encoder/layers/attention/qkv_kernel',
        'vit.layers.{layer}.attention.{q|k|v}_proj.weight',
        'n l (heads e) d -> l d n heads e')

Arrays whose names differ only in `{q|k|v}` or `{layer}` are stacked into one
parameter, alternatives outermost, then `{layer}` or `{unit}`.
`{stage}` is the same number on both sides; `{stage-1}` is one less on theirs.
Values are only rearranged, by einops in either direction, so that a round trip
is bitwise exact.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import itertools
import math
import re

import einops
import numpy as np

from vit_jax.exceptions import UserError

_FIELD = re.compile(r'\{(\w+)([+-]\d+)?(?::(\d+))?\}|\{(\w+(?:\|\w+)+)\}')
_STACKED = ('layer', 'unit')
_MAX_MISSING = 1000  # Names in an error.


@dataclasses.dataclass(frozen=True)
class Row:
  """One kind of parameter.

  Attributes:
    ours: our name.
    theirs: their name.
    layout: einops pattern from their stacked arrays to ours; '' changes
      nothing.
    read_only: only some files have it, so it is never written.
  """
  ours: str
  theirs: str
  layout: str = ''
  read_only: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
  """Rows of a family.

  Attributes:
    renames: replacements, by regular expression, that turn alternative names
      into those of the rows.
    unsupported: reasons why arrays are not read, by regular expressions of
      their names.
    ignored: regular expressions of arrays that belong to other models.
  """
  name: str
  rows: tuple[Row, ...]
  renames: Mapping[str, str | Callable[[re.Match[str]], str]] = (
      dataclasses.field(default_factory=dict))
  unsupported: Mapping[str, str] = dataclasses.field(default_factory=dict)
  ignored: Sequence[str] = ()

  def rename(self, name: str) -> str:
    """Returns the name of an array in the rows."""
    for pattern, replacement in self.renames.items():
      name = re.sub(pattern, replacement, name)
    return name

  def reason(self, name: str) -> str:
    """Returns why an array is not read, or '' for others."""
    return next((text for pattern, text in self.unsupported.items()
                 if re.fullmatch(pattern, name)), '')


@dataclasses.dataclass(frozen=True)
class Match:
  """Their arrays that form one of our parameters.

  Attributes:
    ours: our name.
    theirs: their names, in the order they are stacked.
    axes: lengths of the stacked axes.
    layout: einops pattern, applied after stacking; '' for none.
  """
  ours: str
  theirs: tuple[str, ...]
  axes: tuple[int, ...]
  layout: str


@dataclasses.dataclass(frozen=True)
class _Pattern:
  """A name with placeholders, such as '{layer}'."""
  text: str

  @functools.cached_property
  def stacked(self) -> tuple[str, ...]:
    """Axes of several arrays, outermost first; alternatives as 'q|k|v'."""
    fields = [m[4] or m[1] for m in _FIELD.finditer(self.text)]
    return tuple(sorted(
        (f for f in fields if '|' in f or f in _STACKED),
        key=lambda f: -1 if '|' in f else _STACKED.index(f)))

  @functools.cached_property
  def regex(self) -> re.Pattern[str]:
    parts, end = [], 0
    for field in _FIELD.finditer(self.text):
      parts.append(re.escape(self.text[end:field.start()]))
      name = 'alternatives' if field[4] else field[1]
      parts.append(f'(?P<{name}>{field[4] or "[0-9]+"})')
      end = field.end()
    return re.compile(''.join(parts) + re.escape(self.text[end:]))

  def match(self, name: str) -> dict[str, int] | None:
    """Returns the numbers of placeholders, and the indices of alternatives."""
    found = self.regex.fullmatch(name)
    if found is None:
      return None
    values = {}
    for field in _FIELD.finditer(self.text):
      if field[4]:
        values[field[4]] = field[4].split('|').index(found['alternatives'])
      else:
        values[field[1]] = int(found[field[1]]) - int(field[2] or 0)
    if min(values.values(), default=0) < 0:
      return None
    # '{unit:02}' must be '01': if '1' also matched, two names would be equal.
    return values if self.fill(values) == name else None

  def fill(self, values: Mapping[str, int]) -> str:
    return _FIELD.sub(functools.partial(_filled, values), self.text)


def _filled(values: Mapping[str, int], field: re.Match[str]) -> str:
  """Returns the text of a placeholder."""
  if field[4]:
    return field[4].split('|')[values[field[4]]]
  number = values[field[1]] + int(field[2] or 0)
  return f'{number:0{int(field[3] or 0)}d}'


_pattern = functools.lru_cache(maxsize=None)(_Pattern)


def matches(
    table: Table, names: Sequence[str],
) -> tuple[list[Match], list[str]]:
  """Groups the names in a file by the parameter that they form.

  Returns:
    The parameters; and a line for each problem: a name without a row, or a
    missing array of a stack.
  """
  groups, problems = _group(table, names)
  # All parameters of a stack must have the same number of layers.
  depths: dict[str, int] = {}
  for (ours, pattern, _), members in groups.items():
    if set(pattern.stacked) & set(_STACKED):
      depths[_stack(ours)] = max(depths.get(_stack(ours), 0), *(
          1 + index[-1] for index in members))
  result: list[Match] = []
  for (ours, pattern, row), members in groups.items():
    axes = tuple(
        len(axis.split('|')) if '|' in axis
        else depths[_stack(ours)] for axis in pattern.stacked)
    if math.prod(axes) > len(names) + _MAX_MISSING:
      problems.append(
          f'{ours}: numbered up to {max(axes) - 1:,}, but there are '
          f'{len(members):,} of them')
      continue
    indices = list(itertools.product(*map(range, axes)))
    missing = [index for index in indices if index not in members]
    if any(match.ours == ours for match in result):
      problems.append(
          f'{ours}: found under two names, one of them {pattern.text}')
    # A missing name takes its other placeholders from a neighbour.
    fields = pattern.match(table.rename(next(iter(members.values())))) or {}
    problems += [
        f'{pattern.fill({**fields, **dict(zip(pattern.stacked, index))})}: '
        'missing' for index in missing]
    if not missing:
      result.append(Match(
          ours, tuple(members[i] for i in indices), axes, row.layout))
  return result, problems


_Groups = dict[tuple[str, _Pattern, Row], dict[tuple[int, ...], str]]


def _group(
    table: Table, names: Sequence[str],
) -> tuple[_Groups, list[str]]:
  """Returns names by the indices of their stacked axes, grouped by our name.

  Returns:
    The groups; and a line for each name without a row.
  """
  groups: _Groups = {}
  problems = []
  for name in names:
    if found := find_row(table, name):
      row, pattern, values = found
      index = tuple(values[axis] for axis in pattern.stacked)
      ours = _pattern(row.ours).fill(values)
      group = groups.setdefault((ours, pattern, row), {})
      if index in group:
        problems.append(f'{ours}: found under two names, {group[index]} and '
                        f'{name}')
      group[index] = name
    else:
      reason = table.reason(name)
      problems.append(f'{name}: unexpected' + f' ({reason})' * bool(reason))
  return groups, problems


def to_ours(
    arrays: Sequence[np.ndarray], match: Match, **lengths: int,
) -> np.ndarray:
  """Stacks and rearranges their arrays to our parameter.

  Args:
    arrays: the arrays of `match.theirs`, in this order.
    match: the parameter.
    **lengths: lengths of axes that shapes do not determine, such as heads.

  Raises:
    UserError: if shapes do not fit the pattern.
  """
  arrays = [array.reshape(_plain(array.shape, match)) for array in arrays]
  _check_shapes([array.shape for array in arrays], match)
  stacked = np.stack(arrays).reshape(*match.axes, *arrays[0].shape) if (
      match.axes) else arrays[0]
  return np.ascontiguousarray(_rearrange(stacked, match, lengths))


def our_zeros(
    shapes: Sequence[tuple[int, ...]], match: Match, **lengths: int,
) -> np.ndarray:
  """Like `to_ours` of arrays of these shapes, as zeros that take no memory."""
  shapes = [_plain(shape, match) for shape in shapes]
  _check_shapes(shapes, match)
  zeros = np.broadcast_to(np.float32(0), (*match.axes, *shapes[0]))
  return _rearrange(zeros, match, lengths)


def _plain(shape: tuple[int, ...], match: Match) -> tuple[int, ...]:
  # Group-norm scales of old files are [1, 1, 1, channels].
  old = not match.layout and len(shape) == 4 and shape[:3] == (1, 1, 1)
  return shape[3:] if old else shape


def _check_shapes(shapes: Sequence[tuple[int, ...]], match: Match) -> None:
  by_shape = dict(zip(shapes, match.theirs))
  if len(by_shape) > 1:
    raise UserError(
        f'{match.ours}: expected arrays of one shape, found '
        + ', '.join(f'{shape} ({name})' for shape, name in by_shape.items()))


def _rearrange(
    stacked: np.ndarray, match: Match, lengths: Mapping[str, int],
) -> np.ndarray:
  if not match.layout:
    return stacked
  known = _used(match.layout, lengths)
  try:
    return einops.rearrange(stacked, match.layout, **known)
  except einops.EinopsError as error:
    wanted = match.layout.split('->', maxsplit=1)[0].strip()
    raise UserError(
        f'{match.theirs[0]}: expected [{wanted}]'
        + (f' with {known}' if known else '') +
        f', found {stacked.shape}') from error


def _used(layout: str, lengths: Mapping[str, int]) -> dict[str, int]:
  return {name: length for name, length in lengths.items()
          if re.search(rf'\b{name}\b', layout)}


def to_theirs(
    table: Table, name: str, array: np.ndarray, **lengths: int,
) -> dict[str, np.ndarray]:
  """Converts one of our parameters to their arrays; lengths as in `to_ours`.

  Raises:
    UserError: if the format has no such parameter.
  """
  for row in table.rows:
    values = _pattern(row.ours).match(name)
    if values is None or row.read_only:
      continue
    if row.layout:
      left, right = row.layout.split('->')
      try:
        array = einops.rearrange(
            array, f'{right} -> {left}', **_used(row.layout, lengths))
      except einops.EinopsError:
        continue
    pattern = _pattern(row.theirs)
    axes = len(pattern.stacked)
    result = {}
    for index in np.ndindex(*array.shape[:axes]):
      fields = {**values, **dict(zip(pattern.stacked, index))}
      result[pattern.fill(fields)] = array[index] if axes else array
    return result
  raise UserError(
      f'The format {table.name} has no parameter {name} '
      f'{tuple(array.shape)}. Save the model as orbax.')


def find_row(
    table: Table, name: str,
) -> tuple[Row, _Pattern, dict[str, int]] | None:
  """Returns the row of their name, its pattern and the placeholders' values."""
  name = table.rename(name)
  for row in table.rows:
    pattern = _pattern(row.theirs)
    values = pattern.match(name)
    if values is not None:
      return row, pattern, values
  return None


def _stack(ours: str) -> str:
  """Returns the stack that a parameter belongs to: 'encoder/layers'."""
  parts = ours.split('/')
  ends = [i for i, part in enumerate(parts) if part in ('layers', 'units')]
  return '/'.join(parts[:ends[0] + 1]) if ends else ''
