"""Images per second from disk to batch, of our pipeline and of others.

    python benchmarks/input_speed.py --workers=1,2 --compare tf=PYTHON \
        --compare torch=PYTHON
    python benchmarks/input_speed.py --config=configs/cifar10.py

Reads the data of a config, or synthetic JPEGs as large as ImageNet's with
Inception crop and flip to 224 pixels. `--compare` adds tf.data (`tf`) or a
PyTorch DataLoader (`torch`), with the Python interpreter that has the library.

Wall time and CPU time, of all processes of a pipeline, are measured. A pipeline
prefetches: in the unmeasured first round it fills its buffers. Pipelines with
workers are measured one after the other, because workers of an idle pipeline
still fill their buffers.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import psutil
import synthetic_photos

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import data
from vit_jax.experiment import load_config
from vit_jax.extras.curation import stored_images
from vit_jax.extras.plan import workload

PROGRAM = pathlib.Path(__file__).parent / 'input_pipelines.py'
PREFETCHED = 8  # Batches that a pipeline process may have ready.
# Few enough photos to stay in the page cache.
NUM_PHOTOS, NUM_LINKS = 64, 64
OURS, PREPARED = 'ours', 'ours, prepared'
_TICK_SECS = 0.01  # Resolution of CPU times.


class Pipeline(NamedTuple):
  """A source of batches.

  Attributes:
    read: reads a number of batches and returns the number of images.
    process: the process that works for it, with its children.
  """
  read: object
  process: psutil.Process

  def cpu_secs(self):
    """CPU time until now."""
    return sum(times.user + times.system for times in (
        process.cpu_times() for process in (
            self.process, *self.process.children(recursive=True))))


class Measurement(NamedTuple):
  """One round of a pipeline: images, wall time and CPU time."""
  images: int
  secs: float
  cpu_secs: float


@contextlib.contextmanager
def ours(config, *, batch_size):
  """Yields the training pipeline of a section `data`."""
  batches = data.train_batches(
      config, data.open_dataset(config), seed=0, batch_size=batch_size)
  with contextlib.closing(batches):
    yield Pipeline(lambda count: sum(
        len(batch['mask']) for batch in itertools.islice(batches, count)),
                   psutil.Process())


@contextlib.contextmanager
def program(command):
  """Yields a pipeline that is another program.

  It reads numbers of batches from standard input and answers with JSON.

  Raises:
    RuntimeError: if the program ends early.
  """
  with subprocess.Popen(
      command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
  ) as process:

    def read(count):
      process.stdin.write(f'{count}\n')
      process.stdin.flush()
      line = process.stdout.readline()
      if not line:
        raise RuntimeError(
            f'{command[0]} ended with status {process.wait()}.')
      return json.loads(line)['images']

    try:
      yield Pipeline(read, psutil.Process(process.pid))
    finally:
      process.stdin.close()
      process.terminate()


def interleave(pipelines, *, batches, rounds, prefetched=0):
  """Returns measurements by name; pipelines run in turn.

  The unmeasured first round reads at least `prefetched` batches, which may be
  ready at the start.
  """
  for pipeline in pipelines.values():
    pipeline.read(max(batches, prefetched))
  found = {name: [] for name in pipelines}
  for _ in range(rounds):
    for name, pipeline in pipelines.items():
      cpu_start, start = pipeline.cpu_secs(), time.perf_counter()
      count = pipeline.read(batches)
      found[name].append(Measurement(
          count, time.perf_counter() - start,
          pipeline.cpu_secs() - cpu_start))
  return found


def medians(rounds):
  """Returns images per second and per CPU second, as medians over rounds."""
  return {
      'images_per_sec': statistics.median(m.images / m.secs for m in rounds),
      'images_per_cpu_sec': statistics.median(
          m.images / max(m.cpu_secs, _TICK_SECS) for m in rounds)}


def sections(args, folder):
  """Returns data sections by pipeline name; writes their photos."""
  if args.config:
    stages = load_config.load(args.config, args.set)
    return {OURS: next(iter(stages.values())).data}
  for name in (OURS, PREPARED)[:1 + bool(args.prepared)]:
    synthetic_photos.write(folder / name, NUM_PHOTOS, num_links=NUM_LINKS)
  if args.prepared:
    image_format = stored_images.ImageFormat(args.prepared)
    for path in (folder / PREPARED / synthetic_photos.ORIGINALS).iterdir():
      path.write_bytes(image_format.encode(path.read_bytes()))
  return {path.name: data.parse({
      'source': os.fspath(path), 'resolution': 224,
      'train_ops': workload.TRAIN_OPS}) for path in sorted(folder.iterdir())}


def pipelines(args, found, workers):
  """Yields names and context managers of all pipelines."""
  for name, section in found.items():
    yield name, ours(dataclasses.replace(
        section, num_workers=workers, prefetch=1,
        num_threads=1 if workers else section.num_threads),
                     batch_size=args.batch_size)
  for text in args.compare:
    name, _, python = text.partition('=')
    yield name, program([
        python or sys.executable, os.fspath(PROGRAM), name, found[OURS].source,
        str(max(1, workers)), str(found[OURS].size[0]), str(args.batch_size)])


def parser():
  """Returns the parser of the flags."""
  flags = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  flags.add_argument('--config', help='measure the data of this config')
  flags.add_argument('--set', action='append', default=[], metavar='KEY=VALUE',
                     help='change a value of the config')
  flags.add_argument('--workers', default='1', metavar='N,...',
                     help='input processes; 0 uses threads of this process')
  flags.add_argument('--compare', action='append', default=[],
                     metavar='NAME=PYTHON', help='tf or torch')
  flags.add_argument('--prepared', type=int, default=0, metavar='N',
                     help='also measure the photos as `data prepare '
                     '--shorter-side=N` stores them (originals: 375)')
  flags.add_argument('--rounds', type=int, default=5)
  flags.add_argument('--batches', type=int, default=10, help='per round')
  flags.add_argument('--batch-size', type=int, default=64)
  flags.add_argument('--json')
  return flags


def main(argv):
  """Runs the comparison; returns the exit status."""
  args = parser().parse_args(argv)
  if args.config and (args.compare or args.prepared):
    parser().error('--compare and --prepared measure synthetic photos, '
                   'without --config.')
  rows = []
  with tempfile.TemporaryDirectory() as folder:
    found = sections(args, pathlib.Path(folder))
    for workers in map(int, args.workers.split(',')):
      for name, pipeline in pipelines(args, found, workers):
        with pipeline as opened:
          rounds = interleave(
              {name: opened}, batches=args.batches, rounds=args.rounds,
              prefetched=PREFETCHED * max(1, workers))
        rows.append({'pipeline': name, 'workers': workers,
                     **medians(rounds[name])})
  speeds = {(row['pipeline'], row['workers']): row['images_per_cpu_sec']
            for row in rows}
  console.table(
      f'Input: {args.config or "synthetic JPEGs of 500 x 375 pixels"}, '
      f'{os.cpu_count()} CPU cores', (
          'pipeline', 'workers', 'images/s', 'images/CPU s',
          *[f'speed of {name}' for name in found]),
      [(*row.values(), *[
          f'{speeds[name, row["workers"]] / row["images_per_cpu_sec"]:.2f} x'
          for name in found]) for row in rows])
  if args.json:
    atomic_files.write_json(args.json, rows)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
