"""Measures how fast a part is, beside others that do the same.

    python main.py benchmark --what=input
    python main.py benchmark --what=input --rival tf=/path/to/python

`input` is the way of an image from disk into a batch. Without a config, it
reads JPEGs made for it, of the size of ImageNet's, as the recipes do: Inception
crop, flip, 224 pixels. A rival is named `tf` or `torch`, with the Python that
has it.
"""

import argparse
from collections.abc import Callable
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile

from vit_jax import config as config_lib
from vit_jax import data
from vit_jax.benchmarking import photographs
from vit_jax.benchmarking import reading
from vit_jax.training import progress
from vit_jax.training import writer

OPS = [{'op': 'inception_crop'}, {'op': 'flip'}]
RIVALS = ('tf', 'torch')
SCRIPT = pathlib.Path(__file__).parents[2] / 'benchmarks' / 'input.py'
# Photographs: read from memory after the first turn, by all alike.
COUNT, NAMES = 64, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--what', choices=WHATS, required=True, help='what to measure')
  parser.add_argument(
      '--config', metavar='FILE.py[:name=value,...]',
      help='measure the data of this config instead')
  parser.add_argument(
      '--workers', default='1', metavar='N,...',
      help='processes that read, one measurement each; 0 for threads in this '
      'one (default: %(default)s)')
  parser.add_argument(
      '--rival', action='append', default=[], metavar='NAME=PYTHON',
      help='tf or torch, and the Python that has it; may be repeated')
  parser.add_argument(
      '--turns', type=int, default=5, metavar='N',
      help='of each reader, of which the median is shown (default: '
      '%(default)s)')
  parser.add_argument(
      '--batches', type=int, default=10, metavar='N',
      help='in a turn (default: %(default)s)')
  parser.add_argument(
      '--batch-size', type=int, default=64, metavar='N',
      help='images in a batch (default: %(default)s)')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  return WHATS[args.what](args)


def measure_input(args: argparse.Namespace) -> int:
  """Measures the input; returns the exit status."""
  workers = [int(text) for text in args.workers.split(',')]
  rivals = dict(_rival(text) for text in args.rival)
  if rivals and args.config:
    raise ValueError(
        'Rivals read the photographs that are made here. Leave out --config.')
  with tempfile.TemporaryDirectory() as folder:
    if args.config:
      stages = config_lib.load(args.config, args.overrides)
      section = next(iter(stages.values())).data
    else:
      photographs.write(pathlib.Path(folder), COUNT, names=NAMES)
      section = data.parse({
          'source': folder, 'split': 'train+test', 'resolution': 224,
          'train_ops': OPS})
    rows = [dataclasses.asdict(row) | {'workers': count}
            for count in workers
            for row in _measure(args, section, rivals, folder, workers=count)]
  progress.table(
      f'Input: {section.source if args.config else "JPEGs of 500 x 375"}, '
      f'{os.cpu_count()} cores', (
          'reader', 'workers', 'images/s', 'images/s of a core', 'ours is'), [
              (row['reader'], row['workers'], row['images_per_sec'],
               row['images_per_core_sec'], _ratio(row, rows)) for row in rows])
  if args.json:
    writer.write_json(args.json, rows)
  return 0


def _measure(
    args: argparse.Namespace, section: data.DataConfig, rivals: dict[str, str],
    folder: str, *, workers: int,
) -> list[reading.Row]:
  own = dataclasses.replace(
      section, num_workers=workers, prefetch=1,
      num_threads=1 if workers else section.num_threads)
  with contextlib.ExitStack() as stack:
    readers = {'ours': stack.enter_context(
        reading.ours(own, batch_size=args.batch_size))}
    for name, python in rivals.items():
      readers[name] = stack.enter_context(reading.program([
          python, str(SCRIPT), name, folder, str(max(1, workers)),
          str(section.size[0]), str(args.batch_size)]))
    return reading.medians(reading.alternate(
        readers, batches=args.batches, turns=args.turns))


def _rival(text: str) -> tuple[str, str]:
  name, _, python = text.partition('=')
  if name not in RIVALS:
    raise ValueError(
        f'--rival is NAME=PYTHON with a name of {", ".join(RIVALS)}; got '
        f'{text!r}.')
  return name, python or sys.executable


def _ratio(row: dict, rows: list[dict]) -> str:
  """Returns how many times as fast ours is, of a core."""
  if row['reader'] == 'ours':
    return ''
  own = next(r for r in rows if r['reader'] == 'ours'
             and r['workers'] == row['workers'])
  ratio = own['images_per_core_sec'] / row['images_per_core_sec']
  return f'{ratio:.2f} x'


# A row for each thing that can be measured.
WHATS: dict[str, Callable[[argparse.Namespace], int]] = {
    'input': measure_input,
}
