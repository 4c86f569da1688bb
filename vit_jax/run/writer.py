"""Writes metrics to `metrics.jsonl`, TensorBoard and Weights & Biases.

Each row of `metrics.jsonl` holds the metrics of one step:

    {"step": 10, "train/loss": 2.31, "train/learning_rate": 0.0001}

NaN and infinity, which JSON lacks, are written as `null`; TensorBoard gets the
original values.

A killed run has written rows after its last checkpoint and will write them
again. On resuming, these rows are removed. Of two rows with the same step and
keys, the later one counts.
"""

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import json
import math
import os
import time
from typing import Any, IO

from etils import epath
from jaxtyping import Shaped
import numpy as np
from tensorboardX import event_file_writer
from tensorboardX import summary as tensorboard_summary
from tensorboardX.proto import event_pb2

from vit_jax import atomic_files
from vit_jax import registry
from vit_jax import untrusted

FILENAME = 'metrics.jsonl'
# Objects in a bucket cannot be appended to: rows are uploaded together, at most
# this often and in a hundredth of the time.
UPLOAD_SECS = 60


class MetricWriter:
  """Writes the scalar metrics of one run."""

  def __init__(
      self, workdir: epath.PathLike, *, resume_step: int | None = None,
      active: bool = True, wandb_config: Mapping[str, Any] | None = None,
  ):
    """Opens or creates the files in `workdir`.

    Args:
      workdir: folder of the run.
      resume_step: step of the restored checkpoint: later rows are removed, and
        all rows at step 0. None keeps all rows.
      active: whether this process writes; true for one process of a run.
      wandb_config: config of the run, to also write to Weights & Biases.

    Raises:
      ImportError: if `wandb_config` is given and wandb is not installed.
    """
    self._wandb: Any = None
    self._file: IO[str] | None = None
    self._pending: list[Mapping[str, Any]] = []  # Of a bucket.
    self._due = time.monotonic()
    # `SummaryWriter` would write in a thread, which outlives a failed flush and
    # then fails while Python ends.
    self._events: event_file_writer.EventsWriter | None = None
    if not active:
      return
    workdir = epath.Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    self._path = workdir / FILENAME
    rows = _read(self._path)
    if resume_step is not None:
      limit = 0 if resume_step == 0 else resume_step + 1
      rows = [row for row in rows if row['step'] < limit]
    # Also drops an incomplete last line of a killed run.
    self._replace(rows)
    self._events = event_file_writer.EventsWriter(
        # Two starts within one second must not share an event file.
        os.fspath(workdir / 'events'), f'.{time.time_ns()}')
    if resume_step is not None:  # Hides later events of a killed run.
      self._add_event(step=limit, file_version='brain.Event:2')
      self._add_event(step=limit, session_log=event_pb2.SessionLog(
          status=event_pb2.SessionLog.START))
    if wandb_config is not None:
      self._wandb = registry.load(registry.WANDB).start(workdir, wandb_config)

  def write(self, step: int, scalars: Mapping[str, Any]) -> None:
    """Writes one row of numbers or one-element arrays; in a bucket, later."""
    if self._events is None:
      return
    values = {name: float(value) for name, value in scalars.items()}
    row = {'step': int(step)} | values
    if self._file is None:
      self._pending.append(row)
    else:
      self._file.write(atomic_files.json_line(row))
    for name, value in values.items():
      self._add_event(
          step=int(step), summary=tensorboard_summary.scalar(name, value))
    if self._file is not None or time.monotonic() >= self._due:
      self.flush()
    if self._wandb is not None:
      self._wandb.log(values, step=int(step))

  def flush(self) -> None:
    """Writes all rows: a restart does not repeat those before a checkpoint."""
    if self._events is None:
      return
    start = time.monotonic()
    if self._pending:
      self._replace([*_read(self._path), *self._pending])
      self._pending = []
    elif self._file is not None:
      self._file.flush()
    self._events.flush()
    end = time.monotonic()
    self._due = end + max(UPLOAD_SECS, 100 * (end - start))

  def write_images(
      self, name: str, images: Shaped[np.ndarray, 'n height width channels'],
      *, step: int,
  ) -> None:
    """Writes images to TensorBoard; rescales all but 8-bit ones to [0, 1]."""
    if self._events is None:
      return
    shown = images[..., :3 if images.shape[-1] >= 3 else 1]
    if shown.dtype != np.uint8:
      low, high = float(shown.min()), float(shown.max())
      shown = (shown - low) / max(high - low, 1e-12)
    self._add_event(step=int(step), summary=tensorboard_summary.image(
        name, shown, dataformats='NHWC'))

  def close(self) -> None:
    """Closes the files."""
    if self._events is None:
      return
    if self._pending:
      self.flush()
    # `write` has flushed every other row and raised the errors of a full disk.
    for file in filter(None, (self._file, self._events)):
      with contextlib.suppress(OSError):
        file.close()
    self._file = self._events = None
    if self._wandb is not None:
      self._wandb.finish()

  def _add_event(self, **fields: Any) -> None:
    assert self._events is not None
    self._events.write_event(
        event_pb2.Event(wall_time=time.time(), **fields))

  def _replace(self, rows: Sequence[Mapping[str, Any]]) -> None:
    if self._file is not None:
      self._file.close()
    atomic_files.write_json_lines(self._path, rows)
    if not atomic_files.is_remote(self._path):
      self._file = open(self._path, 'a')  # noqa: SIM115


def read_rows(workdir: epath.PathLike) -> list[dict[str, Any]]:
  """Returns the rows of a run in order; `null` becomes NaN.

  An incomplete last line is ignored; a missing file has no rows.

  Raises:
    ValueError: if another line is not a valid row.
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
      raise ValueError(
          f'{path}, line {number}: expected a row such as {{"step": 10, '
          f'"train/loss": 2.3}}, found {line[:80]!r}. Fix or delete the '
          'line.') from error
    rows[row['step'], frozenset(row)] = row
  return list(rows.values())


def add_rows(
    path: epath.Path, rows: Iterable[Mapping[str, Any]], *, step: int,
) -> None:
  """Appends the rows that a JSON-lines file lacks, each with `step`."""
  lines = untrusted.read_text(path).splitlines() if path.exists() else []
  known = [json.loads(line) for line in lines]
  present = {_without_step(row) for row in known}
  atomic_files.write_json_lines(path, known + [
      {'step': step, **row} for row in rows
      if _without_step(row) not in present])


def _without_step(row: Mapping[str, Any]) -> str:
  return json.dumps({**row, 'step': None}, sort_keys=True)
