"""Fields of config records: metadata, and checks of ranges.

A field that changes what the parameters of a model compute is declared as

    cls: bool | None = fields.switch(None)

Fine-tuning inherits it from the checkpoint, and load reports show it where it
differs from the default.

The type of a field says what changes if a run resumes with another value. The
type of a section holds for its fields, unless they say otherwise:

    seed: int                   the training alone (`NOTED`)
    eval_ops: Measured[tuple]   what evaluators measure
    source: Both[str]           both; metrics so far are not comparable
    num_threads: Free[int]      nothing
    mean: Refused[float]        the run cannot resume: parameters would get
                                other inputs
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import typing
from typing import Annotated, Any, TypeAlias, TypeVar

from vit_jax.exceptions import UserError

T = TypeVar('T')
NOTED, FREE, MEASURED, BOTH, REFUSED = (
    'noted', 'free', 'measured', 'both', 'refused')
Free: TypeAlias = Annotated[T, 'free']
Measured: TypeAlias = Annotated[T, 'measured']
Both: TypeAlias = Annotated[T, 'both']
Refused: TypeAlias = Annotated[T, 'refused']


def switch(default: Any) -> Any:
  """Returns a dataclass field for an architecture switch."""
  return dataclasses.field(default=default, metadata={'architecture': True})


def switches(config: Any) -> tuple[str, ...]:
  """Returns the names of the architecture switches of a config (class)."""
  return tuple(f.name for f in dataclasses.fields(config)
               if f.metadata.get('architecture'))


def non_default(config: Any) -> dict[str, Any]:
  """Returns the architecture switches whose values are not the default."""
  return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)
          if f.metadata.get('architecture')
          and getattr(config, f.name) != f.default}


def on_change(section: Any, path: Sequence[str]) -> str:
  """Returns what a changed value at a path of a config means; see above."""
  found = NOTED
  for key in path:
    if dataclasses.is_dataclass(section):
      hint = typing.get_type_hints(type(section), include_extras=True).get(key)
      found = next((each for each in getattr(hint, '__metadata__', ())
                    if each in (FREE, MEASURED, BOTH, REFUSED)), found)
    section = section.get(key) if isinstance(section, Mapping) else (
        getattr(section, key, None))
  return found


def check_range(
    record: Any, *names: str, low: float = 0, above: float = -math.inf,
    most: float = math.inf, end: float = math.inf,
) -> None:
  """Checks that low <= value <= most and above < value < end for each field.

  A field may be None, or a tuple, of which every number is checked.

  Raises:
    UserError: if a value is outside.
  """
  for name in names:
    value = getattr(record, name)
    numbers = value if isinstance(value, tuple) else (value,)
    if value is None or all(
        low <= x <= most and above < x < end for x in numbers):
      continue
    lowest = f'above {above:g}' if above >= low else f'at least {low:g}'
    highest = (f' and at most {most:,}' if most < math.inf else
               f' and below {end:g}' if end < math.inf else
               ' and finite' * isinstance(numbers[0], float))
    raise UserError(f'{name} must be {lowest}{highest}, but is {value}.')
