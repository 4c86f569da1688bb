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

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
import contextlib
import dataclasses
import itertools
import json
import statistics
import subprocess
import time

import psutil

from vit_jax import data

Batches = Callable[[int], int]  # Makes so many batches; returns the images.
# A process stops when it is next scheduled, on a busy machine a while later.
_HALT_SECS = 1.0


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
    config: data.DataConfig, *, batch_size: int) -> Iterator[Batches]:
  """Gives what makes batches as a training does."""
  dataset = data.open_dataset(config)
  batches = data.train_batches(config, dataset, seed=0, batch_size=batch_size)

  def make(count: int) -> int:
    return sum(len(batch['mask'])
               for batch in itertools.islice(batches, count))

  with contextlib.closing(batches):
    yield make


@contextlib.contextmanager
def program(command: Sequence[str]) -> Iterator[Batches]:
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

    make.process = process.pid  # type: ignore[attr-defined]
    try:
      yield make
    finally:
      lines.close()
      process.terminate()


def alternate(
    readers: Mapping[str, Batches], *, batches: int, turns: int,
) -> dict[str, list[Speed]]:
  """Returns the turns of each reader; an unmeasured one comes first.

  Args:
    readers: by name.
    batches: in a turn.
    turns: of each.
  """
  others = {make.process for make in readers.values()
            if hasattr(make, 'process')}
  speeds: dict[str, list[Speed]] = {name: [] for name in readers}
  try:
    for _ in range(turns + 1):
      for name, make in readers.items():
        _signal(make, others, psutil.Process.resume)
        before, start = _core_secs(make, others), time.perf_counter()
        images = make(batches)
        secs = time.perf_counter() - start
        speeds[name].append(
            Speed(images, secs, _core_secs(make, others) - before))
        _signal(make, others, _halt)
  finally:
    for make in readers.values():
      _signal(make, others, psutil.Process.resume)
  return {name: found[1:] for name, found in speeds.items()}


def _processes(make: Batches, others: Set[int]) -> list[psutil.Process]:
  """Returns a reader's processes, without this one."""
  own = getattr(make, 'process', None)
  found = []
  with contextlib.suppress(psutil.NoSuchProcess):  # Its own error is said.
    roots = [psutil.Process(own)] if own else [
        child for child in psutil.Process().children()
        if child.pid not in others]
    for root in roots:
      found += [root, *root.children(recursive=True)]
  return found


def _core_secs(make: Batches, others: Set[int]) -> float:
  """Returns the seconds of processors of a reader's processes until now."""
  # A reader in this process works in its threads as well.
  own = [] if hasattr(make, 'process') else [psutil.Process()]
  return sum(times.user + times.system for times in (
      process.cpu_times() for process in own + _processes(make, others)))


def _signal(
    make: Batches, others: Set[int],
    send: Callable[[psutil.Process], None],
) -> None:
  for process in _processes(make, others):
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
              statistics.median(s.images / s.core_secs for s in turns))
          for name, turns in speeds.items()]
