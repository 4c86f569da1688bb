"""Figures to files: `metrics.jsonl` for programs, TensorBoard events for eyes.

A row holds what was measured at one step:

    {"step": 10, "train/loss": 2.31, "train/learning_rate": 0.0001}

Strict JSON has no NaN and no infinity; both are written as `null`, which
pandas and every other reader take for a missing number. TensorBoard gets them
as they are.

A run that was killed has written rows beyond its last checkpoint, and will
write them again. So the rows after the checkpoint go when the run resumes, and
a row with the step and the keys of an earlier one takes its place.
"""

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import json
import math
import os
import time
from typing import Any, IO

from etils import epath
import tensorboardX

FILENAME = 'metrics.jsonl'


class MetricWriter:
  """Writes the scalars of one run; only one process of a run is active."""

  def __init__(
      self, workdir: epath.PathLike, *, resume_step: int | None = None,
      active: bool = True,
  ):
    """Opens the files of `workdir`, which is made when missing.

    Args:
      workdir: the run's folder; figures of an earlier start of the same run may
        be there.
      resume_step: step that the run goes on from: rows of later steps are
        removed. 0 starts afresh; None keeps all rows and appends, as an
        evaluation after the training does.
      active: False on every process but the first: nothing is written.
    """
    self._file: IO[str] | None = None
    self._events: tensorboardX.SummaryWriter | None = None
    if not active:
      return
    workdir = epath.Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    self._path = workdir / FILENAME
    rows = _read(self._path)
    if resume_step is not None:
      limit = 0 if resume_step == 0 else resume_step + 1
      rows = [row for row in rows if row['step'] < limit]
    self._written = {_identity(row) for row in rows}
    # Also drops the line that was half written when an earlier run was killed.
    self._replace(rows)
    self._events = tensorboardX.SummaryWriter(
        str(workdir), purge_step=None if resume_step is None else limit,
        # A start within the second of the last one must not overwrite its file.
        filename_suffix=f'.{time.time_ns()}')

  def write(self, step: int, scalars: Mapping[str, Any]) -> None:
    """Writes one row; it is in the file when this returns.

    Args:
      step: updates made when the figures were measured.
      scalars: numbers, or arrays of one element, by name ('train/loss').
    """
    if self._events is None:
      return
    values = {name: float(value) for name, value in scalars.items()}
    row = {'step': int(step)} | values
    if _identity(row) in self._written:
      self._replace(
          [old for old in _read(self._path)
           if _identity(old) != _identity(row)])
    self._written.add(_identity(row))
    self._append(row)
    for name, value in values.items():
      self._events.add_scalar(name, value, int(step))
    self._events.flush()

  def close(self) -> None:
    """Closes the files; nothing is written afterwards.

    Where the disk is full, whoever wrote last has said so, and rows are in the
    file before: another error here would hide that one.
    """
    if self._file is not None:
      with contextlib.suppress(OSError):
        self._file.close()
    if self._events is not None:
      try:
        self._events.close()
      except OSError:
        # Else its thread, and it itself when Python exits, would say so too.
        if self._events.file_writer is not None:
          self._events.file_writer.event_writer._worker.stop()
          self._events.file_writer.event_writer = _Closed()
    self._file = self._events = None

  def _append(self, row: Mapping[str, Any]) -> None:
    if self._file is None:  # An object of a bucket cannot be appended to.
      self._replace([*_read(self._path), row])
      return
    self._file.write(_line(row))
    self._file.flush()

  def _replace(self, rows: Sequence[Mapping[str, Any]]) -> None:
    """Makes `rows` the whole file, which is the old or the new one, never half.
    """
    if is_remote(self._path):
      # Written whole or not at all.
      self._path.write_text(''.join(_line(row) for row in rows))
      return
    if self._file is not None:
      self._file.close()
    new = self._path.with_name(FILENAME + '.new')
    with new.open('w') as file:
      file.writelines(_line(row) for row in rows)
      file.flush()
      os.fsync(file.fileno())
    new.replace(self._path)
    self._file = self._path.open('a')


class _Closed:
  """Stands where TensorBoard's file was that could not be closed."""

  def close(self) -> None:
    """Nothing is left to do."""


def read_rows(workdir: epath.PathLike) -> list[dict[str, Any]]:
  """Returns the rows of a run, by the order of writing; `null` is NaN again.

  A last line that was cut by a kill is left out, and a missing file has no
  rows.

  Raises:
    ValueError: if a line before the last is no row: the file was damaged.
  """
  return [
      {name: math.nan if value is None else value
       for name, value in row.items()}
      for row in _read(epath.Path(workdir) / FILENAME)]


def is_remote(path: epath.PathLike) -> bool:
  """Whether a path lies in a bucket, such as gs://bucket/run."""
  return '://' in os.fspath(path)


def _read(path: epath.Path) -> list[dict[str, Any]]:
  if not path.exists():
    return []
  # Only a line that ends was written whole: what follows the last end is cut.
  *lines, _ = path.read_text().split('\n')
  rows = []
  for number, line in enumerate(lines, start=1):
    try:
      row = json.loads(line)
      row['step'] = int(row['step'])
    except (ValueError, TypeError, KeyError) as error:
      raise ValueError(
          f'{path}, line {number}: expected a row such as {{"step": 10, '
          f'"train/loss": 2.3}}, found {line[:80]!r}. Mend or delete the '
          'line.') from error
    rows.append(row)
  return rows


def _line(row: Mapping[str, Any]) -> str:
  strict = {
      name: value if value is not None and math.isfinite(value) else None
      for name, value in row.items()}
  return json.dumps(strict, allow_nan=False) + '\n'


def _identity(row: Mapping[str, Any]) -> tuple[int, frozenset[str]]:
  return row['step'], frozenset(row)


def add_rows(
    path: epath.PathLike, rows: Iterable[Mapping[str, Any]], *, step: int,
) -> None:
  """Adds rows to a file of lines of JSON, those that it does not have yet.

  Args:
    path: the file; the old one or the new one, never half.
    rows: each is known by its values.
    step: written with those that are new.
  """
  path = epath.Path(path)
  lines = path.read_text().splitlines() if path.exists() else []
  known = [json.loads(line) for line in lines]
  there = {_values(row) for row in known}
  known += [{'step': step, **row} for row in rows if _values(row) not in there]
  path.parent.mkdir(parents=True, exist_ok=True)
  new = path.with_name(path.name + '.new')
  new.write_text(''.join(json.dumps(row) + '\n' for row in known))
  new.replace(path)


def _values(row: Mapping[str, Any]) -> tuple[Any, ...]:
  return tuple(value for name, value in sorted(row.items()) if name != 'step')


def write_json(path: epath.PathLike, value: Any) -> None:
  """Writes strict JSON; the file is the old one or the new one, never half."""
  path = epath.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  new = path.with_name(path.name + '.new')
  new.write_text(json.dumps(_strict(value), indent=2, allow_nan=False) + '\n')
  new.replace(path)


def _strict(value: Any) -> Any:
  """JSON has no NaN: a number that is not one becomes null."""
  if isinstance(value, float) and not math.isfinite(value):
    return None
  if isinstance(value, Mapping):
    return {key: _strict(v) for key, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [_strict(v) for v in value]
  return value
