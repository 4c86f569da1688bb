"""Converts plain data to typed records and checks every config key.

A config is a tree of plain dicts, which files, flags and JSON can hold. Each
component declares its section as a frozen dataclass, and `parse` converts plain
data to it. A misspelt key, a missing unit or a wrong type raises an error that
names the key, what was expected and what was found.
"""

import ast
from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import json
import math
import types
import typing
from typing import Any, TypeVar

from vit_jax import exceptions
from vit_jax import registry
from vit_jax.exceptions import UserError

T = TypeVar('T')
nearest, check_name = registry.nearest, registry.check_name

# Units of a duration, as in `total: {epochs: 300}`.
UNITS = ('steps', 'examples', 'epochs', 'percent')


class FlagText(str):
  """A value from the command line, converted to the type of its field."""


@dataclasses.dataclass(frozen=True)
class Duration:
  """A length of training with its unit: exactly one field is set."""
  steps: int | float | None = None
  examples: int | float | None = None  # Images, counted with repetition.
  epochs: int | float | None = None  # Passes over the training split.
  percent: int | float | None = None  # Percentage of the whole run.

  def __post_init__(self):
    written = [unit for unit in UNITS if getattr(self, unit) is not None]
    if len(written) != 1:
      raise UserError(
          'A duration has exactly one unit, for example {"epochs": 300}; got '
          f'{ {unit: getattr(self, unit) for unit in written} }. '
          f'Units: {", ".join(UNITS)}.')
    if not 0 <= getattr(self, written[0]) < math.inf:
      raise UserError(
          'A duration cannot be negative or infinite; got '
          f'{to_plain(self)}.')

  def to_steps(self, **sizes: Any) -> int:
    """Returns this duration in steps, rounded; see `exact_steps`."""
    return round(self.exact_steps(**sizes))

  def exact_steps(
      self, *, batch_size: int, num_examples: int,
      total_steps: int | None = None,
  ) -> float:
    """Returns this duration in steps, not rounded.

    Args:
      batch_size: images in the global batch.
      num_examples: images in the training split.
      total_steps: length of the run; needed for `percent` only.

    Raises:
      UserError: for `percent` without `total_steps`.
    """
    if self.steps is not None:
      return self.steps
    if self.examples is not None:
      return self.examples / batch_size
    if self.epochs is not None:
      return self.epochs * num_examples / batch_size
    assert self.percent is not None
    if total_steps is None:
      raise UserError(
          'The total length of a run cannot be a percentage of itself: write '
          'it in steps, examples or epochs.')
    return self.percent / 100 * total_steps

  def is_due(self, step: int, **sizes: Any) -> bool:
    """Returns whether an interval of this length ends with `step`.

    The interval is not rounded to whole steps, so every 25 % of 337 steps is
    due at the last step, and every epoch at the end of the epoch.

    Args:
      step: steps completed, from 1.
      **sizes: see `exact_steps`.
    """
    interval = max(1.0, self.exact_steps(**sizes))
    # Tolerance for rounding: 3 intervals of 1/3 are 1.
    done, before = (math.floor(s / interval + 1e-9) for s in (step, step - 1))
    return done > before


def words(error: BaseException) -> str:
  """Returns the message of an error, without the number of an OSError."""
  if isinstance(error, OSError) and error.filename and error.strerror:
    other = f' -> {error.filename2}' if error.filename2 else ''
    return f'{error.filename}{other}: {error.strerror}'
  return str(error)


def parse_assignment(text: str, *, usage: str) -> tuple[str, FlagText]:
  """Splits 'section.key=value' into the key and the value.

  Args:
    text: value of a command-line flag or an argument of a config file.
    usage: subject and verb of the message, such as '--set takes KEY=VALUE'.

  Raises:
    UserError: without an equals sign or with an empty key.
  """
  key, equals, value = text.partition('=')
  if not equals or not all(key.split('.')):
    raise UserError(f'{usage}, but got {text!r}.')
  return key, FlagText(value)


def parse(record: type[T], section: Any, *, where: str) -> T:
  """Builds the dataclass `record` from a section of a config.

  Args:
    record: a dataclass whose fields are the keys of the section. Fields without
      a default are required.
    section: plain data: numbers, strings, lists, dicts.
    where: name of the section in the config, such as 'optimizer'.

  Raises:
    UserError: for an unknown key, a missing key, or a value of a wrong type.
  """
  if isinstance(section, record):
    return section
  if not isinstance(section, Mapping):
    raise UserError(f'{where} must be {_describe(record)} but is {section!r}.')
  hints = typing.get_type_hints(record)
  fields = {f.name: f for f in dataclasses.fields(record) if f.init}  # type: ignore[arg-type]
  for key in section:
    if key not in fields:
      raise UserError(registry.ended(f'{where}.{key}') or (
          f'Unknown key {where}.{key}.{nearest(key, list(fields))} '
          f'Known keys: {", ".join(fields)}.'))
  missing = [
      name for name, f in fields.items()
      if name not in section and f.default is dataclasses.MISSING
      and f.default_factory is dataclasses.MISSING]
  if missing:
    raise UserError(f'{where} needs the key(s) {", ".join(missing)}.')
  values = {
      key: convert(value, hints[key], where=f'{where}.{key}')
      for key, value in section.items()}
  with exceptions.within(where):
    return record(**values)


def check_section(section: Any, *, where: str) -> Mapping[str, Any]:
  """Returns the section, or raises a UserError if it is no mapping."""
  if not isinstance(section, Mapping):
    raise UserError(f'{where} must be a section with keys, but is {section!r}.')
  return section


def to_plain(value: Any) -> Any:
  """Returns a record as nested dicts, lists and scalars for JSON."""
  if isinstance(value, Duration):
    return {unit: getattr(value, unit) for unit in UNITS
            if getattr(value, unit) is not None}
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return {f.name: to_plain(getattr(value, f.name))
            for f in dataclasses.fields(value)}
  if isinstance(value, Mapping):
    return {str(k): to_plain(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [to_plain(v) for v in value]
  return value


def convert(value: Any, hint: Any, *, where: str) -> Any:
  """Converts `value` to the annotated type `hint`, or raises with `where`."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin in (typing.Union, types.UnionType):
    return _convert_union(value, args, where=where)
  if isinstance(value, FlagText):
    # 'none' may be one of the choices: `remat=none`.
    chosen = origin is typing.Literal and str(value) in args
    value = str(value) if chosen else _read_flag(value, hint)
  if hint is Any:
    return value
  if origin is typing.Literal:
    if value not in args:
      raise UserError(
          f'{where} is {value!r}.{nearest(value, [str(a) for a in args])} '
          f'Expected one of {", ".join(repr(a) for a in args)}.')
    return value
  if dataclasses.is_dataclass(hint):
    return parse(typing.cast(type, hint), value, where=where)
  if origin is tuple:
    return _convert_tuple(value, args, where=where)
  if hint is dict or origin in (dict, Mapping):
    return {str(k): convert(v, args[1] if args else Any, where=f'{where}.{k}')
            for k, v in check_section(value, where=where).items()}
  return _convert_scalar(value, hint, where=where)


def _convert_union(value: Any, options: Sequence[Any], *, where: str) -> Any:
  """Tries each type in turn, str last: '384' is a number where possible."""
  ordered = sorted(options, key=lambda option: option is str)
  errors = []
  for option in ordered:
    try:
      return convert(value, option, where=where)
    except UserError as error:
      errors.append(error)
  # For a mapping, the error of the record among the options is most helpful.
  read = _read_flag(value, Any) if isinstance(value, FlagText) else value
  if isinstance(read, Mapping):
    for option, failure in zip(ordered, errors):
      if dataclasses.is_dataclass(option):
        raise failure
  wanted = ' or '.join(_describe(option) for option in options)
  raise UserError(f'{where} must be {wanted}, but is {value!r}.')


def _convert_tuple(value: Any, args: Sequence[Any], *, where: str) -> tuple:
  if not isinstance(value, (list, tuple)):
    raise UserError(f'{where} must be a list, but is {value!r}.')
  if len(args) == 2 and args[1] is Ellipsis:
    args = (args[0],) * len(value)
  if len(args) != len(value):
    raise UserError(f'{where} must have {len(args)} entries, but is {value!r}.')
  return tuple(convert(v, a, where=f'{where}[{i}]')
               for i, (v, a) in enumerate(zip(value, args)))


def _convert_scalar(value: Any, hint: Any, *, where: str) -> Any:
  if isinstance(value, int) and not -2**63 <= value < 2**63:
    raise UserError(f'{where} must be a number of at most 64 bits.')
  if hint is float and isinstance(value, int) and not isinstance(value, bool):
    value = float(value)
  is_bool_for_number = isinstance(value, bool) and hint in (int, float)
  if not isinstance(value, hint) or is_bool_for_number:
    raise UserError(f'{where} must be {_describe(hint)}, but is {value!r}.')
  if isinstance(value, float) and math.isnan(value):
    raise UserError(f'{where} is not a number (NaN).')
  return value


def _read_flag(text: FlagText, hint: Any) -> Any:
  """Reads a command-line value as Python or JSON, or as text for str."""
  if hint is str:
    return str(text)
  constants = {'true': True, 'false': False, 'none': None, 'null': None}
  if text.lower() in constants:
    return constants[text.lower()]
  malformed = ValueError, TypeError, SyntaxError, RecursionError, MemoryError
  with contextlib.suppress(*malformed):
    return ast.literal_eval(str(text))
  if text.startswith(('[', '{')):
    with contextlib.suppress(*malformed):
      return json.loads(text)
  return str(text)


def _describe(hint: Any) -> str:
  if hint is type(None):
    return 'none'
  if typing.get_origin(hint) is typing.Literal:
    return f'one of {", ".join(repr(a) for a in typing.get_args(hint))}'
  if hint is Duration:
    return 'a duration with its unit, for example {"epochs": 300},'
  if dataclasses.is_dataclass(hint):
    return f'a section with keys ({hint.__name__}),'  # type: ignore[union-attr]
  return getattr(hint, '__name__', str(hint))
