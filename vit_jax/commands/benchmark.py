"""Measures how fast a part is, beside others that do the same.

    python main.py benchmark --what=input
    python main.py benchmark --what=input --rival tf=/path/to/python
    python main.py benchmark --what=step --model=B/16
    python main.py benchmark --what=step --config=configs/x.py

`input` is the way of an image from disk into a batch. Without a config, it
reads JPEGs made for it, of the size of ImageNet's, as the recipes do: Inception
crop, flip, 224 pixels. A rival is named `tf` or `torch`, with the Python that
has it.

`step` is the training step of a config, or of a model on such JPEGs; its
forward pass; what share of the devices' best both reach; what part of the time
the input takes; and how long a fresh process takes to its first step. Rivals
are in `benchmarks/compare.py`.
"""

import argparse
from collections.abc import Callable
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import sys
import tempfile
from typing import Any

import jax

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax import data
from vit_jax import schema
from vit_jax.benchmarking import photographs
from vit_jax.benchmarking import reading
from vit_jax.benchmarking import start
from vit_jax.benchmarking import step
from vit_jax.benchmarking import step_tables
from vit_jax.benchmarking import workload
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import load_config
from vit_jax.plan import build_without_data
from vit_jax.prepare import images

RIVALS = ('tf', 'torch')
SCRIPT = pathlib.Path(__file__).parents[2] / 'benchmarks' / 'input.py'
# Photographs: read from memory after the first turn, by all alike.
COUNT, NAMES = 64, 64
_OURS, _PREPARED = 'ours', 'ours, prepared'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--what', choices=WHATS, required=True, help='what to measure')
  parser.add_argument(
      '--config', metavar='FILE.py[:name=value,...]',
      help='measure what this config says instead: its data, or its step')
  parser.add_argument(
      '--model', default='', metavar='VARIANT',
      help='of --what=step, such as B/16, where there is no config')
  parser.add_argument(
      '--resolution', type=int, default=224, metavar='PIXELS',
      help="of the model's images (default: %(default)s)")
  parser.add_argument(
      '--dtype', choices=('float32', 'bfloat16'), default='float32',
      help='that the model computes in (default: %(default)s)')
  parser.add_argument(
      '--starts', type=int, default=5, metavar='N',
      help='of fresh processes, each with and without what was compiled '
      'before; 0 leaves them out (default: %(default)s)')
  parser.add_argument(
      '--workers', default='1', metavar='N,...',
      help='processes that read, one measurement each (a step takes one '
      'number); 0 for threads in this one (default: %(default)s)')
  parser.add_argument(
      '--rival', action='append', default=[], metavar='NAME=PYTHON',
      help='tf or torch, and the Python that has it; may be repeated')
  parser.add_argument(
      '--prepared', type=int, default=0, metavar='N',
      help='of the input: ours reads the photographs once more, as `data '
      'prepare --shorter-side=N` stores them (375 is theirs)')
  parser.add_argument(
      '--turns', type=int, default=5, metavar='N',
      help='of each thing, of which the median is shown (default: '
      '%(default)s)')
  parser.add_argument(
      '--batches', type=int, metavar='N',
      help='in a turn (default: 10 of the input; of a step, as many as take a '
      'second)')
  parser.add_argument(
      '--batch-size', type=int, metavar='N',
      help="images in a batch (default: 64 of the input; of a step, the "
      "config's, or 8)")


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  for flag in ('turns', 'batches', 'batch_size'):
    value = getattr(args, flag)
    if value is not None and value < 1:
      raise ValueError(f'--{flag.replace("_", "-")} must be at least 1, but is '
                       f'{value}.')
  for flag, what in (('prepared', 'input'), ('rival', 'input')):
    if getattr(args, flag) and args.what != what:
      raise ValueError(f'--{flag} is of --what={what}, but this is '
                       f'--what={args.what}. Leave it out.')
  return WHATS[args.what](args)


def measure_input(args: argparse.Namespace) -> int:
  """Measures the input; returns the exit status."""
  if not re.fullmatch(r'\d+(,\d+)*', args.workers):
    raise ValueError(
        '--workers is a number of processes, or several with commas, such as '
        f'1,2,4; got {args.workers!r}.')
  workers = [int(text) for text in args.workers.split(',')]
  rivals = dict(_rival(text) for text in args.rival)
  if (rivals or args.prepared) and args.config:
    raise ValueError(
        'Rivals read the photographs that are made here, and those are what is '
        'prepared. Leave out --config.')
  with tempfile.TemporaryDirectory() as folder:
    if args.config:
      stages = load_config.load(args.config, args.overrides)
      section = next(iter(stages.values())).data
    else:
      section = data.parse({
          'source': os.path.join(folder, 'photographs'), 'split': 'train+test',
          'resolution': 224, 'train_ops': workload.TRAIN_OPS})
      photographs.write(pathlib.Path(section.source), COUNT, names=NAMES)
    if args.prepared and 0 in workers:
      raise ValueError(
          'Two readers in the threads of one process cannot be told apart: '
          '--prepared takes --workers of 1 or more.')
    own = {_OURS: section}
    if args.prepared:
      own[_PREPARED] = dataclasses.replace(
          section, source=os.path.join(folder, 'prepared'))
      photographs.write(
          pathlib.Path(own[_PREPARED].source), COUNT, names=NAMES,
          stored=images.ImageFormat(args.prepared).encode)
    rows = [dataclasses.asdict(row) | {'workers': count}
            for count in workers
            for row in _measure(args, own, rivals, workers=count)]
  beside = list(own) if len(own) + len(rivals) > 1 else []
  console_lib.table(
      f'Input: {section.source if args.config else "JPEGs of 500 x 375"}, '
      + f'prepared: {args.prepared} the shorter side, ' * bool(args.prepared)
      + f'{os.cpu_count()} cores', (
          'reader', 'workers', 'images/s', 'images/s of a core',
          *[f'{name} is' for name in beside]), [
              (row['reader'], row['workers'], row['images_per_sec'],
               row['images_per_core_sec'],
               *[_ratio(name, row, rows) for name in beside]) for row in rows])
  if args.json:
    atomic_files.write_json(args.json, rows)
  return 0


def _measure(
    args: argparse.Namespace, own: dict[str, data.DataConfig],
    rivals: dict[str, str], *, workers: int,
) -> list[reading.Row]:
  first = own[_OURS]
  with contextlib.ExitStack() as stack:
    readers = {name: stack.enter_context(reading.ours(
        dataclasses.replace(
            section, num_workers=workers, prefetch=1,
            num_threads=1 if workers else section.num_threads),
        batch_size=args.batch_size or 64)) for name, section in own.items()}
    for name, python in rivals.items():
      readers[name] = stack.enter_context(reading.program([
          python, str(SCRIPT), name, first.source, str(max(1, workers)),
          str(first.size[0]), str(args.batch_size or 64)]))
    return reading.medians(reading.alternate(
        readers, batches=args.batches or 10, turns=args.turns,
        ready=reading.READY * max(1, workers)))


def _rival(text: str) -> tuple[str, str]:
  name, python = schema.parse_assignment(
      text if '=' in text else f'{text}={sys.executable}',
      usage='--rival takes NAME=PYTHON')
  schema.check_name(name, list(RIVALS), what='rival')
  return name, python


def _ratio(name: str, row: dict, rows: list[dict]) -> str:
  """Returns how many times as fast a reader is as that of a row, of a core."""
  if row['reader'] == name:
    return ''
  own = next(r for r in rows if r['reader'] == name
             and r['workers'] == row['workers'])
  ratio = own['images_per_core_sec'] / row['images_per_core_sec']
  return f'{ratio:.2f} x'


def measure_step(args: argparse.Namespace) -> int:
  """Measures a training step and all around it; returns the exit status."""
  with tempfile.TemporaryDirectory() as folder:
    config = _subject(args, pathlib.Path(folder))
    # Other processes first: this one keeps the accelerator once it has it.
    starts = start.measure(
        config, turns=args.starts,
        say=functools.partial(print, flush=True)) if args.starts else None
    experiment, origin = build_without_data.build(config, jax.devices())
    measured = step.measure(
        experiment, turns=args.turns, repeats=args.batches,
        with_input=origin == 'data')
  step_tables.show(_title(args, config), measured)
  if starts:
    step_tables.show_starts(starts, turns=args.starts)
  if args.json:
    atomic_files.write_json(args.json, {
        **_said(args, config), **dataclasses.asdict(measured),
        'starts': starts and dataclasses.asdict(starts)})
  return 0


def _said(
    args: argparse.Namespace, config: config_lib.Config) -> dict[str, Any]:
  """Returns what was measured, as JSON has it."""
  return {
      'model': config.model.variant or args.config,
      'resolution': config.data.size, 'batch_size': config.batch_size,
      'dtype': config.model.dtype, 'cores': os.cpu_count()}


def _title(args: argparse.Namespace, config: config_lib.Config) -> str:
  height, width = config.data.size
  return (f'{config.model.variant or args.config} at {height} x {width}, batch '
          f'{config.batch_size:,}, {config.model.dtype}')


def _subject(
    args: argparse.Namespace, folder: pathlib.Path) -> config_lib.Config:
  """Returns the config to measure; its first stage, if it has several."""
  if bool(args.config) == bool(args.model):
    raise ValueError(
        'A step is of a model or of a config. Name one of the two: '
        '--model=B/16, or --config=configs/x.py.')
  if not args.workers.isdigit():
    raise ValueError(f'A step takes one number of --workers; got '
                     f'{args.workers!r}.')
  if args.config:
    config = next(iter(load_config.load(args.config, args.overrides).values()))
    return dataclasses.replace(
        config, batch_size=args.batch_size or config.batch_size)
  photographs.write_classes(folder, COUNT)
  return workload.config(
      args.model, resolution=args.resolution, batch_size=args.batch_size or 8,
      dtype=args.dtype, source=os.fspath(folder), num_workers=int(args.workers),
      overrides=args.overrides)


# A row for each thing that can be measured.
WHATS: dict[str, Callable[[argparse.Namespace], int]] = {
    'input': measure_input,
    'step': measure_step,
}
