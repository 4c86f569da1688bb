"""Measures the speed of a training step.

    python main.py benchmark --model=B/16
    python main.py benchmark --config=configs/x.py

The command measures the training step and the forward pass, their utilisation
and memory, without reading data. Programs in benchmarks/ compare with other
implementations.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import Any

from etils import epy

from vit_jax import fields
from vit_jax.commands import arguments
from vit_jax.exceptions import UserError

with epy.lazy_imports():
  from vit_jax import console
  from vit_jax.experiment import build as build_lib
  from vit_jax.experiment import config as config_lib
  from vit_jax.experiment import load_config
  from vit_jax.extras.plan import step_speed
  from vit_jax.extras.plan import workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the command."""
  arguments.add_config(
      parser, 'measure this config, or the first of its stages', required=False)
  parser.add_argument(
      '--model', default='', metavar='VARIANT',
      help='measure this model, such as B/16; change its settings by '
      '--config.model.dtype=bfloat16')
  parser.add_argument(
      '--rounds', type=int, default=5, metavar='N',
      help='number of measurements, whose median is reported (default: '
      '%(default)s)')
  parser.add_argument(
      '--batches', type=int, metavar='N',
      help='batches per round (default: as many as take one second)')
  parser.add_argument(
      '--batch-size', type=int, metavar='N',
      help='images per batch (default: the batch size of the config; 8 with '
      '--model)')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  fields.check_range(args, 'rounds', 'batches', 'batch_size', low=1)
  config = _config(args)
  experiment = build_lib.build(config, data_optional=True)
  found = step_speed.measure(
      experiment, rounds=args.rounds, repeats=args.batches)
  title = config.model.variant or args.config
  height, width = config.data.size
  _print(f'{title} at {height} x {width}, batch {config.batch_size:,}, '
         f'{experiment.config.model.dtype}', found)
  return 0, {
      'model': title, 'resolution': config.data.size,
      'batch_size': config.batch_size, 'dtype': experiment.config.model.dtype,
      'cpu_cores': os.cpu_count(), **dataclasses.asdict(found)}


def _config(args: argparse.Namespace) -> config_lib.Config:
  """Returns the config to measure."""
  if bool(args.config) == bool(args.model):
    raise UserError(
        'benchmark requires either --model, such as --model=B/16, or --config, '
        'such as --config=configs/pretrain.py.')
  if args.config:
    config = next(iter(load_config.load(args.config, args.overrides).values()))
    return dataclasses.replace(workload.without_evals(config), batch_size=(
        args.batch_size or config.batch_size))
  return workload.config(
      args.model, batch_size=args.batch_size or 8, source='imagenet2012',
      overrides=args.overrides)


def _print(title: str, found: step_speed.StepSpeed) -> None:
  columns = [_rows(speed) for speed in (found.train, found.inference)]
  console.table(
      f'{title}, {found.devices} x {found.device_kind}, '
      f'{os.cpu_count()} CPU cores', ('', 'training step', 'inference'),
      [(name, *(column[name] for column in columns)) for name in columns[0]])
  print('Medians of interleaved rounds (lowest – highest).')
  if found.num_microbatches > 1:
    print(f'A batch is split into {found.num_microbatches} microbatches.')


def _rows(speed: step_speed.Speed) -> dict[str, str | None]:
  number = console.format_number
  return {
      'images/s': number(speed.images_per_sec),
      'seconds': speed.secs.text,
      'GFLOP/image': number(speed.flops_per_image / 1e9),
      'TFLOP/s': number(speed.flops_per_sec / 1e12),
      '% of data sheet peak': (
          None if speed.utilisation is None
          else console.format_percent(speed.utilisation, digits=1)),
      'memory per device': console.format_bytes(speed.needed_bytes)}
