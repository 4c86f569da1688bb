"""Images a second through the whole input: read, decode, crop, resize, batch.

Ours and others take turns, so that what else the machine does strikes all
alike. Two speeds of each: by the clock, and by the seconds of processors that a
reader and all of its processes took, which is what a core can do. Every reader
works ahead, so its processes are halted while others have their turn: what it
has ready when a turn begins it has ready again when the turn ends.

Another reader is a program: given a line of text, it makes a number of batches
and writes how many images and seconds these were, as JSON; see
`benchmarks/input.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import itertools
import json
import statistics
import subprocess
import time

import psutil

from vit_jax import data

# A process stops when it is next scheduled, on a busy machine a while later.
_HALT_SECS = 1.0
# Batches that a process holds ready, ours 5 of them, a few on their way.
READY = 8
_TICK_SECS = 0.01  # That the kernel counts the time of processors in.


@dataclasses.dataclass(frozen=True)
class Reader:
  """What makes batches.

  Attributes:
    make: makes so many batches; returns the images.
    processes: that it works in, beside this one.
    is_here: whether it works in this one as well.
  """
  make: Callable[[int], int]
  processes: Sequence[psutil.Process]
  is_here: bool


@dataclasses.dataclass(frozen=True)
class Speed:
  """A turn of one reader.

  Attributes:
    images: that it made.
    secs: by the clock.
    core_secs: of processors.
  """
  images: int
  secs: float
  core_secs: float


@dataclasses.dataclass(frozen=True)
class Row:
  """What a reader's turns come to, medians.

  Attributes:
    reader: its name.
    images_per_sec: by the clock.
    images_per_core_sec: by the time of processors.
  """
  reader: str
  images_per_sec: float
  images_per_core_sec: float


@contextlib.contextmanager
def ours(
    config: data.DataConfig, *, batch_size: int) -> Iterator[Reader]:
  """Gives what makes batches as a training does."""
  dataset = data.open_dataset(config)
  batches = data.train_batches(config, dataset, seed=0, batch_size=batch_size)
  before = set(psutil.Process().children())

  def make(count: int) -> int:
    return sum(len(batch['mask'])
               for batch in itertools.islice(batches, count))

  with contextlib.closing(batches):
    make(1)  # Its workers are there then.
    yield Reader(make, list(set(psutil.Process().children()) - before), True)


@contextlib.contextmanager
def program(command: Sequence[str]) -> Iterator[Reader]:
  """Gives what makes batches in another program.

  Raises:
    RuntimeError: if it ends before its time.
  """
  with subprocess.Popen(
      command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
  ) as process:
    lines, answers = process.stdin, process.stdout
    assert lines is not None and answers is not None

    def make(count: int) -> int:
      lines.write(f'{count}\n')
      lines.flush()
      line = answers.readline()
      if not line:
        raise RuntimeError(f'{command[0]} ended, with {process.wait()}.')
      return int(json.loads(line)['images'])

    try:
      yield Reader(make, [psutil.Process(process.pid)], False)
    finally:
      lines.close()
      process.terminate()


def alternate(
    readers: Mapping[str, Reader], *, batches: int, turns: int, ready: int = 0,
) -> dict[str, list[Speed]]:
  """Returns the turns of each reader; an unmeasured one comes first.

  Args:
    readers: by name.
    batches: in a turn.
    turns: of each.
    ready: batches that a reader may hold before its first turn, which makes
      so many at least: they cost nothing.
  """
  speeds: dict[str, list[Speed]] = {name: [] for name in readers}
  try:
    for reader in readers.values():
      _signal(reader, _halt)
    for count in [max(batches, ready)] + [batches] * turns:
      for name, reader in readers.items():
        _signal(reader, psutil.Process.resume)
        before, start = _core_secs(reader), time.perf_counter()
        images = reader.make(count)
        secs = time.perf_counter() - start
        speeds[name].append(Speed(images, secs, _core_secs(reader) - before))
        _signal(reader, _halt)
  finally:
    for reader in readers.values():
      _signal(reader, psutil.Process.resume)
  return {name: found[1:] for name, found in speeds.items()}


def _processes(reader: Reader) -> list[psutil.Process]:
  """Returns a reader's processes, and those that they started."""
  found: list[psutil.Process] = []
  with contextlib.suppress(psutil.NoSuchProcess):  # Its own error is said.
    for process in reader.processes:
      found += [process, *process.children(recursive=True)]
  return found


def _core_secs(reader: Reader) -> float:
  """Returns the seconds of processors of a reader's processes until now."""
  # A reader in this process works in its threads as well.
  own = [psutil.Process()] * reader.is_here
  return sum(times.user + times.system for times in (
      process.cpu_times() for process in own + _processes(reader)))


def _signal(
    reader: Reader, send: Callable[[psutil.Process], None]) -> None:
  for process in _processes(reader):
    with contextlib.suppress(psutil.NoSuchProcess):
      send(process)


def _halt(process: psutil.Process) -> None:
  """Suspends a process, and waits until it is: the next turn is not its own."""
  process.suspend()
  end = time.monotonic() + _HALT_SECS
  while process.status() == psutil.STATUS_RUNNING and time.monotonic() < end:
    time.sleep(0.001)


def medians(speeds: Mapping[str, Sequence[Speed]]) -> list[Row]:
  """Returns a row for each reader."""
  return [Row(name, statistics.median(s.images / s.secs for s in turns),
              statistics.median(
                  s.images / max(s.core_secs, _TICK_SECS) for s in turns))
          for name, turns in speeds.items()]
