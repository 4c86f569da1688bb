"""Speed of input pipelines: read, decode, crop, resize and batch.

Wall time and CPU time, of all processes of a pipeline, are measured. A pipeline
prefetches: in the unmeasured first round it fills its buffers. Pipelines with
workers must be measured one after the other, because workers of an idle
pipeline still fill their buffers.

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

PREFETCHED = 8  # Batches that a pipeline process may have ready.
_TICK_SECS = 0.01  # Resolution of CPU times.


@dataclasses.dataclass(frozen=True)
class Pipeline:
  """A source of batches.

  Attributes:
    read: reads a number of batches and returns the number of images.
    process: the process that works for it, with its children.
  """
  read: Callable[[int], int]
  process: psutil.Process

  def cpu_secs(self) -> float:
    """CPU time until now."""
    return sum(times.user + times.system for times in (
        process.cpu_times() for process in (
            self.process, *self.process.children(recursive=True))))


@dataclasses.dataclass(frozen=True)
class Measurement:
  """One round of a pipeline: images, wall time and CPU time."""
  images: int
  secs: float
  cpu_secs: float


@contextlib.contextmanager
def ours(
    config: data.DataConfig, *, batch_size: int) -> Iterator[Pipeline]:
  """Yields the training pipeline of a config."""
  dataset = data.open_dataset(config)
  batches = data.train_batches(config, dataset, seed=0, batch_size=batch_size)

  def read(count: int) -> int:
    return sum(len(batch['mask'])
               for batch in itertools.islice(batches, count))

  with contextlib.closing(batches):
    yield Pipeline(read, psutil.Process())


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
      yield Pipeline(read, psutil.Process(process.pid))
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
    batches: batches per round.
    rounds: measured rounds of each pipeline.
    prefetched: batches that may be ready at first; the unmeasured round reads
      at least that many.
  """
  for pipeline in pipelines.values():
    pipeline.read(max(batches, prefetched))
  found: dict[str, list[Measurement]] = {name: [] for name in pipelines}
  for _ in range(rounds):
    for name, pipeline in pipelines.items():
      cpu_start, start = pipeline.cpu_secs(), time.perf_counter()
      images = pipeline.read(batches)
      found[name].append(Measurement(
          images, time.perf_counter() - start,
          pipeline.cpu_secs() - cpu_start))
  return found


def medians(rounds: Sequence[Measurement]) -> dict[str, float]:
  """Returns images per second and per CPU second, as medians over rounds."""
  return {
      'images_per_sec': statistics.median(m.images / m.secs for m in rounds),
      'images_per_cpu_sec': statistics.median(
          m.images / max(m.cpu_secs, _TICK_SECS) for m in rounds)}
