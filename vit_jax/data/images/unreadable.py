"""Policy for unreadable images: an error, or replaced, counted and named.

`data.unreadable` applies to training, `data.eval_unreadable` to evaluation.
With 'skip', training uses the next readable example of the dataset, so that a
batch stays full and a pure function of (seed, step), and evaluation masks the
image like padding. File system errors (OSError) are never skipped: a batch
would then depend on when it is read.

Each batch row carries the index of the unreadable example that it replaces, so
counts do not depend on the number of workers.
"""

from collections.abc import Callable
import dataclasses
import sys
from typing import Literal

import numpy as np

from vit_jax import escape

Policy = Literal['error', 'skip']

KEY = 'unreadable'  # Host batch entry: index of the skipped example, or NONE.
NONE = -1
ALWAYS_ALLOWED = 10  # Unreadable images allowed at any fraction.
MAX_REPLACEMENTS = 32  # Consecutive examples to try before giving up.


class UnreadableError(ValueError):
  """The bytes of an example cannot be decoded."""


@dataclasses.dataclass(frozen=True)
class Unreadable:
  """An unreadable example: its dataset and split, its key, and the reason."""
  data: str
  key: str
  error: str


@dataclasses.dataclass(frozen=True)
class UnreadableLog:
  """Prints each unreadable example once, to stderr.

  Attributes:
    found: unreadable examples by dataset and key, in order of discovery.
  """
  found: dict[tuple[str, str], Unreadable] = dataclasses.field(
      default_factory=dict)

  def count(self, data: str) -> int:
    """Returns the number of unreadable examples of a dataset and split."""
    return sum(name == data for name, _ in self.found)

  def add(self, unreadable: Unreadable) -> None:
    name = unreadable.data, unreadable.key
    if name not in self.found:
      self.found[name] = unreadable
      print(escape.lines(f'skipped unreadable image: {unreadable.error}'),
            file=sys.stderr, flush=True)


@dataclasses.dataclass(kw_only=True)
class UnreadableCounter:
  """Counts unreadable images among the rows that this process has read.

  Attributes:
    max_share: allowed fraction of `total_rows` or, if more, of `rows`.
    log: names the unreadable examples.
    rows: number of rows, including those before a restart.
    count: number of unreadable ones.
    total_rows: number of rows that will be read; 0 if unknown.
  """
  max_share: float
  log: UnreadableLog = dataclasses.field(default_factory=UnreadableLog)
  rows: int = 0
  count: int = 0
  total_rows: int = 0

  def add(
      self, indices: np.ndarray, find: Callable[[int], list[Unreadable]],
  ) -> None:
    """Adds a batch: for each row, the unreadable example or NONE.

    `find` returns the unreadable example at an index and those that follow.

    Raises:
      ValueError: if too many rows are unreadable.
    """
    self.rows += len(indices)
    name = ''
    for index in indices[indices != NONE]:
      self.count += 1
      for unreadable in find(int(index)):
        self.log.add(unreadable)
        name = unreadable.data
    # Training reads a small dataset again and again, and ten examples are
    # always allowed.
    if self.max_share and self.log.count(name) <= ALWAYS_ALLOWED:
      return
    if self.count > allowed(
        self.max_share, max(self.rows, self.total_rows)):
      last = list(self.log.found.values())[-3:]
      raise ValueError(
          f'{self.count:,} of {self.rows:,} images are unreadable, more than '
          f'data.max_unreadable={self.max_share:g} allows. The last ones:\n  '
          + '\n  '.join(one.error for one in last)
          + '\nRepair or remove them (`data check` lists all), or raise '
          'data.max_unreadable.')


def allowed(max_share: float, rows: int) -> int:
  """Returns the number of `rows` that may be unreadable."""
  return (max(min(ALWAYS_ALLOWED, rows), int(max_share * rows)) if max_share
          else 0)
