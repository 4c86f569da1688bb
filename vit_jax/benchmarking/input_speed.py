"""Speed of input pipelines: read, decode, crop, resize and batch.

Pipelines run in turn. Their processes are suspended between turns, because
pipelines prefetch: each has as many batches ready at the end of a turn as at
its beginning. Both wall time and CPU time, of all processes of a pipeline, are
measured.

A pipeline may be another program, which reads numbers of batches from standard
input and answers with JSON; see `benchmarks/input_pipelines.py`.
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

_SUSPEND_SECS = 1.0  # Longest wait for a process to be suspended.
PREFETCHED = 8  # Batches that a pipeline process may have ready.
_TICK_SECS = 0.01  # Resolution of CPU times.


@dataclasses.dataclass(frozen=True)
class Pipeline:
  """A source of batches.

  Attributes:
    read: reads a number of batches and returns the number of images.
    processes: its processes besides this one.
    in_this_process: whether this process also works for it.
  """
  read: Callable[[int], int]
  processes: Sequence[psutil.Process]
  in_this_process: bool


@dataclasses.dataclass(frozen=True)
class Measurement:
  """One turn of a pipeline: images, wall time and CPU time."""
  images: int
  secs: float
  cpu_secs: float


@dataclasses.dataclass(frozen=True)
class Row:
  """Medians over the turns of a pipeline."""
  pipeline: str
  images_per_sec: float
  images_per_cpu_sec: float


@contextlib.contextmanager
def ours(
    config: data.DataConfig, *, batch_size: int) -> Iterator[Pipeline]:
  """Yields the training pipeline of a config."""
  dataset = data.open_dataset(config)
  batches = data.train_batches(config, dataset, seed=0, batch_size=batch_size)
  before = set(psutil.Process().children())

  def read(count: int) -> int:
    return sum(len(batch['mask'])
               for batch in itertools.islice(batches, count))

  with contextlib.closing(batches):
    read(1)  # Starts the workers.
    yield Pipeline(read, list(set(psutil.Process().children()) - before), True)


@contextlib.contextmanager
def program(command: Sequence[str]) -> Iterator[Pipeline]:
  """Yields a pipeline that is another program.

  Raises:
    RuntimeError: if the program ends early.
  """
  with subprocess.Popen(
      command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
  ) as process:
    requests, answers = process.stdin, process.stdout
    assert requests is not None and answers is not None

    def read(count: int) -> int:
      requests.write(f'{count}\n')
      requests.flush()
      line = answers.readline()
      if not line:
        raise RuntimeError(
            f'{command[0]} ended with status {process.wait()}.')
      return int(json.loads(line)['images'])

    try:
      yield Pipeline(read, [psutil.Process(process.pid)], False)
    finally:
      requests.close()
      process.terminate()


def interleave(
    pipelines: Mapping[str, Pipeline], *, batches: int, rounds: int,
    prefetched: int = 0,
) -> dict[str, list[Measurement]]:
  """Measures pipelines in turn, after one unmeasured round.

  Args:
    pipelines: pipelines by name.
    batches: batches per turn.
    rounds: measured turns of each pipeline.
    prefetched: batches that may be ready at first; the unmeasured round reads
      at least that many.
  """
  found: dict[str, list[Measurement]] = {name: [] for name in pipelines}
  try:
    for pipeline in pipelines.values():
      _signal(pipeline, _suspend)
    for count in [max(batches, prefetched)] + [batches] * rounds:
      for name, pipeline in pipelines.items():
        _signal(pipeline, psutil.Process.resume)
        before, start = _cpu_secs(pipeline), time.perf_counter()
        images = pipeline.read(count)
        secs = time.perf_counter() - start
        found[name].append(
            Measurement(images, secs, _cpu_secs(pipeline) - before))
        _signal(pipeline, _suspend)
  finally:
    for pipeline in pipelines.values():
      _signal(pipeline, psutil.Process.resume)
  return {name: rows[1:] for name, rows in found.items()}


def _processes(pipeline: Pipeline) -> list[psutil.Process]:
  found: list[psutil.Process] = []
  with contextlib.suppress(psutil.NoSuchProcess):  # `read` reports it.
    for process in pipeline.processes:
      found += [process, *process.children(recursive=True)]
  return found


def _cpu_secs(pipeline: Pipeline) -> float:
  own = [psutil.Process()] if pipeline.in_this_process else []
  return sum(times.user + times.system for times in (
      process.cpu_times() for process in own + _processes(pipeline)))


def _signal(
    pipeline: Pipeline, send: Callable[[psutil.Process], None]) -> None:
  for process in _processes(pipeline):
    with contextlib.suppress(psutil.NoSuchProcess):
      send(process)


def _suspend(process: psutil.Process) -> None:
  """Suspends a process and waits until the scheduler has stopped it."""
  process.suspend()
  end = time.monotonic() + _SUSPEND_SECS
  while process.status() == psutil.STATUS_RUNNING and time.monotonic() < end:
    time.sleep(0.001)


def medians(found: Mapping[str, Sequence[Measurement]]) -> list[Row]:
  """Returns a row per pipeline."""
  return [Row(name, statistics.median(m.images / m.secs for m in rows),
              statistics.median(
                  m.images / max(m.cpu_secs, _TICK_SECS) for m in rows))
          for name, rows in found.items()]
