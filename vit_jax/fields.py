"""Fields of config records: metadata, and checks of ranges.

A field that changes what the parameters of a model compute is declared as

    parallel: bool = fields.switch(False)

Fine-tuning inherits it from the checkpoint, and load reports show it where it
differs from the default.
"""

import dataclasses
import math
from typing import Any


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


def check_range(
    record: Any, *names: str, low: float = 0, above: float = -math.inf,
    most: float = math.inf, end: float = math.inf,
) -> None:
  """Checks that low <= value <= most and above < value < end for each field.

  A field may be None, or a tuple, of which every number is checked.

  Raises:
    ValueError: if a value is outside.
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
    raise ValueError(f'{name} must be {lowest}{highest}, but is {value}.')
