"""Policy for unreadable images: an error, or replaced, counted and named.

`data.unreadable` applies to training, `data.eval_unreadable` to evaluation.
With 'skip', training uses the next readable example of the data set, so that a
batch stays full and a pure function of (seed, step), and evaluation masks the
image like padding. Failing file systems (OSError) are always errors: they would
make batches depend on when they are read.

Each batch row carries the index of the unreadable example that it replaces, so
counts do not depend on the number of workers.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import sys
from typing import Any, Literal

import numpy as np

Policy = Literal['error', 'skip']

KEY = 'unreadable'  # Host batch entry: index of the skipped example, or NONE.
NONE = -1
ALWAYS_ALLOWED = 10  # Unreadable images, whatever their fraction.
MAX_REPLACEMENTS = 32  # Consecutive examples to try before giving up.
PREPARED_FROM = 'prepared_from'  # Example entry: its key before `data prepare`.


class UnreadableError(ValueError):
  """The bytes of an example cannot be decoded."""


@dataclasses.dataclass(frozen=True)
class Unreadable:
  """An unreadable example: name and split of its data set, its key, reason."""
  data: str
  key: str
  error: str


@contextlib.contextmanager
def add_origin(example: Mapping[str, Any]) -> Iterator[None]:
  """Adds the original file of a prepared example to its errors."""
  try:
    yield
  except ValueError as error:
    if PREPARED_FROM not in example:
      raise
    raise ValueError(
        f'{str(error).removesuffix(".")}; prepared from '
        f'{example[PREPARED_FROM]}') from error


class UnreadableLog:
  """Prints each unreadable example once, to stderr.

  Attributes:
    found: unreadable examples by data set and key, in order of discovery.
  """

  def __init__(self):
    self.found: dict[tuple[str, str], Unreadable] = {}

  def add(self, unreadable: Unreadable) -> None:
    name = unreadable.data, unreadable.key
    if name not in self.found:
      self.found[name] = unreadable
      print(f'skipped unreadable image: {unreadable.error}', file=sys.stderr,
            flush=True)


class UnreadableCounter:
  """Counts unreadable images among the rows that this process has read."""

  def __init__(
      self, *, max_share: float, log: UnreadableLog | None = None,
      rows: int = 0, count: int = 0, total_rows: int = 0):
    """Creates a counter that allows a fraction `max_share` of `total_rows`.

    It continues from `count` unreadable rows among `rows` before a restart.
    """
    self.log = log or UnreadableLog()
    self.rows = rows
    self.count = count
    self._max_share = max_share
    self._total_rows = total_rows

  def add(
      self, indices: np.ndarray, find: Callable[[int], list[Unreadable]],
  ) -> None:
    """Adds a batch: for each row, the unreadable example or NONE.

    `find` returns an unreadable example and those after it.

    Raises:
      ValueError: if too many rows are unreadable.
    """
    self.rows += len(indices)
    for index in indices[indices != NONE]:
      self.count += 1
      for unreadable in find(int(index)):
        self.log.add(unreadable)
    if self.count > allowed(
        self._max_share, max(self.rows, self._total_rows)):
      last = list(self.log.found.values())[-3:]
      raise ValueError(
          f'{self.count:,} of {self.rows:,} images are unreadable, more than '
          f'data.max_unreadable={self._max_share:g} allows. The last ones:\n  '
          + '\n  '.join(one.error for one in last)
          + '\nRepair the data or raise data.max_unreadable.')


def allowed(max_share: float, rows: int) -> int:
  """Returns how many of `rows` may be unreadable."""
  return (max(min(ALWAYS_ALLOWED, rows), int(max_share * rows)) if max_share
          else 0)
