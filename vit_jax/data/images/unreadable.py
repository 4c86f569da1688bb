"""Images that cannot be read: an error, or a stated rule, counted and named.

`data.unreadable` is 'error' or 'skip' for training, `data.eval_unreadable` for
evaluation. With 'skip',

  training     takes the next example of the data set that can be read, with
               its label. Which one that is depends on the files alone, so the
               batch remains a function of (seed, step), a restart repeats it,
               and a batch stays full: no loss, mixup or norm sees an empty row.
  evaluation   leaves the image out, as it does padding (mask 0): a figure is
               over the images that were read, and says how many these are.

What cannot be read is what the bytes say: a damaged record, a file that is no
image or too large. A file system that fails (OSError) is always an error: at
another time it does not, and the batch would depend on when.

Workers send no messages: each row of a batch says of which example it is a
substitute, so that counts are as exact as batches are, whatever the number of
workers and hosts. The words of the error are found by reading it once more.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import sys
from typing import Any, Literal

import numpy as np

Policy = Literal['error', 'skip']

KEY = 'unreadable'  # Of a batch, on the host alone: the example, or NONE.
NONE = -1
# So many are no sign of anything yet, whatever their share.
FEW = 10
# Of an example: its key in the source that it was prepared from, if it was.
PREPARED_FROM = 'prepared_from'
# Of examples that follow an unreadable one. More in a row are no accident.
TRIES = 32


class UnreadableError(ValueError):
  """An example's own bytes cannot be read."""


@dataclasses.dataclass(frozen=True)
class Unreadable:
  """An example that cannot be read.

  Attributes:
    data: name and split of its data set.
    key: what its source calls it: a path, or a file and a number.
    error: why.
  """
  data: str
  key: str
  error: str


@contextlib.contextmanager
def named_as_before(example: Mapping[str, Any]) -> Iterator[None]:
  """Says of a prepared example what file to mend: its place is a number."""
  try:
    yield
  except ValueError as error:
    if PREPARED_FROM not in example:
      raise
    raise ValueError(
        f'{str(error).removesuffix(".")}; prepared from '
        f'{example[PREPARED_FROM]}') from error


class Log:
  """What could not be read, each example once, in training or evaluation.

  Attributes:
    found: by data set and key, in the order in which they were come upon.
  """

  def __init__(self, say: Callable[[str], None] | None = None):
    """Begins.

    Args:
      say: is told of each example; writes to standard error if not given.
    """
    self.found: dict[tuple[str, str], Unreadable] = {}
    self._say = say or _write

  def add(self, unreadable: Unreadable) -> None:
    """Takes an example in, which may be known."""
    name = unreadable.data, unreadable.key
    if name not in self.found:
      self.found[name] = unreadable
      self._say(f'unreadable, left out: {unreadable.error}')


class Tally:
  """Counts what could not be read of the rows that this process was given."""

  def __init__(
      self, *, max_share: float, log: Log | None = None, rows: int = 0,
      count: int = 0, of: int = 0,
  ):
    """Begins, or goes on.

    Args:
      max_share: of the rows given, how many may be unreadable; but `FEW` may.
      log: is told which.
      rows: given until now.
      count: of them, those that could not be read.
      of: rows that there will be, where that is known.
    """
    self.log = Log() if log is None else log
    self.rows = rows
    self.count = count
    self._max_share = max_share
    self._of = of

  def add(
      self, indices: np.ndarray, read: Callable[[int], list[Unreadable]],
  ) -> None:
    """Takes in a batch.

    Args:
      indices: of each row, the example that could not be read, or NONE.
      read: returns what there is to say of an example, and of those after it
        that were tried.

    Raises:
      ValueError: if there are too many.
    """
    self.rows += len(indices)
    for index in indices[indices != NONE]:
      self.count += 1
      for unreadable in read(int(index)):
        self.log.add(unreadable)
    limit = allowed(self._max_share, max(self.rows, self._of))
    if self.count > limit:
      some = list(self.log.found.values())[-3:]
      raise ValueError(
          f'{self.count:,} of {self.rows:,} images could not be read, more '
          f'than data.max_unreadable, {self._max_share:g}, allows. The last of '
          'them:\n  ' + '\n  '.join(one.error for one in some)
          + '\nMend the data, or raise data.max_unreadable.')


def allowed(max_share: float, rows: int) -> int:
  """Returns how many of so many rows may be unreadable."""
  return max(min(FEW, rows), int(max_share * rows)) if max_share else 0


def _write(text: str) -> None:
  print(text, file=sys.stderr, flush=True)
