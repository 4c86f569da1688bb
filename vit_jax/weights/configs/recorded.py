"""A JSON object that records which of its keys are read."""

from collections.abc import Iterator
import re
from typing import Any


class Recorded(dict[str, Any]):
  """A dict whose nested dicts become `Recorded` when they are read."""

  def __init__(self, data: dict[str, Any]):
    super().__init__(data)
    self._read: set[object] = set()

  def __contains__(self, key: object) -> bool:
    self._read.add(key)
    return super().__contains__(key)

  def __getitem__(self, key: str) -> Any:
    self._read.add(key)
    value = super().__getitem__(key)
    if isinstance(value, dict) and not isinstance(value, Recorded):
      self[key] = value = Recorded(value)
    return value

  def get(self, key: str, default: Any = None) -> Any:
    self._read.add(key)
    return self[key] if super().__contains__(key) else default

  def items(self) -> Any:
    return {key: self[key] for key in self}.items()

  def unread(self, irrelevant: re.Pattern[str]) -> Iterator[str]:
    """Yields the settings that were not read, as 'key=value' or 'section'.

    Null, false and empty values are left out: they switch something off.

    Args:
      irrelevant: keys that need not be read.
    """
    for key, value in super().items():
      if irrelevant.fullmatch(key) or not value:
        continue
      if key not in self._read:
        yield key if isinstance(value, (dict, list)) else (
            f'{key}={value!r:.60}')
      elif isinstance(value, Recorded):
        yield from (f'{key}.{text}' for text in value.unread(irrelevant))
