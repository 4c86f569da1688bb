"""Writes metrics to `metrics.jsonl`, and passes them to trackers.

Each row of `metrics.jsonl` holds the metrics of one step:

    {"step": 10, "train/loss": 2.31, "train/learning_rate": 0.0001}

NaN and infinity, which JSON lacks, are written as `null`; trackers, such as
TensorBoard, get the original values.

A killed run has written rows after its last checkpoint and will write them
again. On resuming, these rows are removed. Of two rows with the same step and
keys, the later one counts.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import math
import time
from typing import Any, Protocol, runtime_checkable

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax import untrusted
from vit_jax.exceptions import UserError

FILENAME = 'metrics.jsonl'
# Objects in a bucket cannot be appended to: rows are uploaded together, at most
# this often.
UPLOAD_SECS = 60


@runtime_checkable
class Tracker(Protocol):
  """Another place that gets the rows, such as TensorBoard."""

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Adds a row."""

  def write_images(self, step: int, name: str, images: jax.Array) -> None:
    """Adds images [batch, height, width, channels]."""

  def flush(self) -> None:
    """Writes everything."""

  def close(self) -> None:
    """Ends the run."""


class NoWriter:
  """Writes nothing, in all processes of a run but the first."""

  def write(self, *args: Any) -> None:
    pass

  flush = write_images = close = write


class MetricWriter:
  """Writes the scalar metrics of one run."""

  def __init__(
      self, workdir: epath.PathLike, *, first_step: int,
      trackers: Sequence[Tracker] = (),
      explain_errors: Callable[[], contextlib.AbstractContextManager] = (
          contextlib.nullcontext),
  ):
    """Opens or creates the file in `workdir`.

    Args:
      workdir: folder of the run.
      first_step: rows of this and of later steps are removed.
      trackers: other places that get the rows.
      explain_errors: returns a context for the writes of rows.
    """
    self._path = epath.Path(workdir) / FILENAME
    self._trackers, self._explain_errors = trackers, explain_errors
    self._pending: list[str] = []
    self._due = time.monotonic()
    # Also drops an incomplete last line of a killed run.
    atomic_files.write_json_lines(self._path, [
        row for row in _read(self._path) if row['step'] < first_step])

  def write(self, step: int, scalars: Mapping[str, Any]) -> None:
    """Writes one row of numbers or one-element arrays; in a bucket, later."""
    values = {name: float(value) for name, value in scalars.items()}
    self._pending.append(atomic_files.json_line({'step': int(step)} | values))
    with self._explain_errors():
      for tracker in self._trackers:
        tracker.write(step, values)
    if not atomic_files.is_remote(self._path) or (
        time.monotonic() >= self._due):
      self.flush()

  def write_images(self, step: int, name: str, images: jax.Array) -> None:
    """Passes images to the trackers."""
    with self._explain_errors():
      for tracker in self._trackers:
        tracker.write_images(step, name, images)

  def flush(self) -> None:
    """Writes all rows: a restart does not repeat those before a checkpoint."""
    lines, self._pending = ''.join(self._pending), []
    with self._explain_errors():
      if atomic_files.is_remote(self._path):
        atomic_files.write_text(self._path, self._path.read_text() + lines)
      else:
        with open(self._path, 'a') as file:
          file.write(lines)
      for tracker in self._trackers:
        tracker.flush()
    self._due = time.monotonic() + UPLOAD_SECS

  def close(self) -> None:
    """Writes the last rows."""
    if self._pending:
      self.flush()
    for tracker in self._trackers:
      tracker.close()


def read_rows(workdir: epath.PathLike) -> list[dict[str, Any]]:
  """Returns the rows of a run in order; `null` becomes NaN.

  An incomplete last line is ignored; a missing file has no rows.

  Raises:
    UserError: if another line is not a valid row.
  """
  return [
      {name: math.nan if value is None else value
       for name, value in row.items()}
      for row in _read(epath.Path(workdir) / FILENAME)]


def _read(path: epath.Path) -> list[dict[str, Any]]:
  if not path.exists():
    return []
  # Text after the last newline is an incomplete row of a killed run.
  *lines, _ = untrusted.read_text(path).split('\n')
  rows = {}
  for number, line in enumerate(lines, start=1):
    try:
      row = untrusted.parse_json(line)
      row['step'] = int(row['step'])
    except (ValueError, OverflowError, TypeError, KeyError) as error:
      raise UserError(
          f'{path}, line {number}: expected a row such as {{"step": 10, '
          f'"train/loss": 2.3}}, found {line[:80]!r}. Fix or delete the '
          'line.') from error
    rows[row['step'], frozenset(row)] = row
  return list(rows.values())
