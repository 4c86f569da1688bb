"""Policy for unreadable images: an error, or replaced, counted and named.

With `data.unreadable='skip'`, training uses the next readable example of the
dataset, so that a batch stays full and a pure function of (seed, step), and
evaluation masks the image like padding. Errors of the file system (OSError) are
never skipped, except for a missing file: a batch would then depend on when it
is read.

Each batch row carries the index of the unreadable example that it replaces, so
counts do not depend on the number of workers.
"""

from collections.abc import Callable
import dataclasses
import sys
from typing import Literal

import numpy as np

from vit_jax import escape
from vit_jax.exceptions import UserError

Policy = Literal['error', 'skip']

KEY = 'unreadable'  # Host batch entry: index of the skipped example, or NONE.
NONE = -1
MAX_REPLACEMENTS = 32  # Consecutive examples to try before giving up.


class UnreadableError(UserError):
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
    log: names the unreadable examples.
    rows: number of rows, including those before a restart.
    count: number of unreadable ones.
  """
  log: UnreadableLog = dataclasses.field(default_factory=UnreadableLog)
  rows: int = 0
  count: int = 0

  def add(
      self, indices: np.ndarray, find: Callable[[int], list[Unreadable]],
  ) -> None:
    """Adds a batch: for each row, the unreadable example or NONE.

    `find` returns the unreadable example at an index and those that follow.
    """
    self.rows += len(indices)
    for index in indices[indices != NONE]:
      self.count += 1
      for unreadable in find(int(index)):
        self.log.add(unreadable)
