"""`main.py benchmark`: speed of the input pipeline or of a training step.

    python main.py benchmark --what=input
    python main.py benchmark --what=input --compare tf=/path/to/python
    python main.py benchmark --what=step --model=B/16
    python main.py benchmark --what=step --config=configs/x.py
    python main.py benchmark --what=start --model=B/16

`input` measures images per second from disk to batch: of a config, or of
synthetic JPEGs as large as ImageNet's with Inception crop and flip to 224
pixels. `--compare` adds tf.data (`tf`) or a PyTorch DataLoader (`torch`), with
the Python interpreter that has the library.

`step` measures the training step of a config, or of a model on synthetic
JPEGs: training, forward pass, utilisation, memory, waiting for input, and the
time from process start to the first step. `start` measures only the latter.
benchmarks/compare.py compares with other implementations.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import os
import pathlib
import re
import sys
import tempfile
from typing import Any

import jax

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import data
from vit_jax.benchmarking import input_speed
from vit_jax.benchmarking import startup_time
from vit_jax.benchmarking import step_report
from vit_jax.benchmarking import step_speed
from vit_jax.benchmarking import synthetic_photos
from vit_jax.benchmarking import workload
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import load_config
from vit_jax.plan import build_without_data
from vit_jax.prepare import images

OTHER_PIPELINES = ('tf', 'torch')
SCRIPT = pathlib.Path(__file__).parents[2] / 'benchmarks' / 'input_pipelines.py'
# Few enough photos to stay in the page cache.
NUM_PHOTOS, NUM_LINKS = 64, 64
_OURS, _PREPARED = 'ours', 'ours, prepared'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the command."""
  parser.add_argument(
      '--what', choices=('input', 'step', 'start'), required=True,
      help='what to measure')
  parser.add_argument(
      '--config', metavar='FILE.py[:name=value,...]',
      help='measure the data or the step of this config')
  parser.add_argument(
      '--model', default='', metavar='VARIANT',
      help='model of --what=step or start without --config, such as B/16; '
      'change a value with --config.model.dtype=bfloat16')
  parser.add_argument(
      '--starts', type=int, default=5, metavar='N',
      help='cold and warm starts; 0 skips them (default: %(default)s)')
  parser.add_argument(
      '--workers', default='1', metavar='N,...',
      help='input processes, one measurement each (a single number for a '
      'step); 0 uses threads of this process (default: %(default)s)')
  parser.add_argument(
      '--compare', action='append', default=[], metavar='NAME=PYTHON',
      help='tf or torch, and the Python interpreter that has it; may be '
      'repeated')
  parser.add_argument(
      '--prepared', type=int, default=0, metavar='N',
      help='for input: also measure the photos as `data prepare '
      '--shorter-side=N` stores them (originals: 375)')
  parser.add_argument(
      '--rounds', type=int, default=5, metavar='N',
      help='measurements; medians are reported (default: %(default)s)')
  parser.add_argument(
      '--batches', type=int, metavar='N',
      help='batches per round (default: 10 for input, otherwise enough for '
      'one second)')
  parser.add_argument(
      '--batch-size', type=int, metavar='N',
      help='images per batch (default: 64 for input, otherwise that of the '
      'config, or 8)')


def run(args: argparse.Namespace) -> int:
  """Runs a benchmark and returns the exit status."""
  for flag in ('rounds', 'batches', 'batch_size'):
    value = getattr(args, flag)
    if value is not None and value < 1:
      raise ValueError(
          f'--{flag.replace("_", "-")} must be at least 1, but got {value}.')
  for flag in ('prepared', 'compare'):
    if getattr(args, flag) and (args.what != 'input' or args.config):
      raise ValueError(
          f'--{flag} requires --what=input with synthetic photos, but got '
          f'--what={args.what}{" and --config" * bool(args.config)}.')
  if not re.fullmatch(r'\d+(,\d+)*', args.workers) or (
      args.what != 'input' and ',' in args.workers):
    raise ValueError(
        '--workers must be a number of processes, or for --what=input several '
        f'separated by commas, such as 1,2,4; got {args.workers!r}.')
  with tempfile.TemporaryDirectory() as folder:
    measure = benchmark_input if args.what == 'input' else benchmark_step
    figures = measure(args, pathlib.Path(folder))
  if args.json:
    atomic_files.write_json(args.json, figures)
  return 0


def benchmark_input(
    args: argparse.Namespace, folder: pathlib.Path,
) -> list[dict[str, Any]]:
  """Measures input pipelines and returns a row for each."""
  others = dict(_parse_other(text) for text in args.compare)
  sections = _input_sections(args, folder)
  rows = []
  for workers in map(int, args.workers.split(',')):
    for name, pipeline in _pipelines(args, sections, others, workers):
      with pipeline as opened:
        rounds = input_speed.interleave(
            {name: opened}, batches=args.batches or 10, rounds=args.rounds,
            prefetched=input_speed.PREFETCHED * max(1, workers))
      rows.append({'pipeline': name, 'workers': workers,
                   **input_speed.medians(rounds[name])})
  baselines = list(sections) if len(sections) + len(others) > 1 else []
  source = (sections[_OURS].source if args.config
            else 'synthetic JPEGs of 500 x 375 pixels')
  prepared = f', prepared with shorter side {args.prepared}' * bool(
      args.prepared)
  console.table(
      f'Input: {source}{prepared}, {os.cpu_count()} CPU cores', (
          'pipeline', 'workers', 'images/s', 'images/CPU s',
          *[f'speed of {name}' for name in baselines]),
      [(*row.values(), *[_ratio(name, row, rows) for name in baselines])
       for row in rows])
  return rows


def _input_sections(
    args: argparse.Namespace, folder: pathlib.Path,
) -> dict[str, data.DataConfig]:
  """Returns data sections by pipeline name; writes their photos."""
  if args.config:
    stages = load_config.load(args.config, args.overrides)
    return {_OURS: next(iter(stages.values())).data}
  encoders: dict[str, Callable[[bytes], bytes]] = {_OURS: bytes}
  if args.prepared:
    encoders[_PREPARED] = images.ImageFormat(args.prepared).encode
  for name, encode in encoders.items():
    synthetic_photos.write(
        folder / name, NUM_PHOTOS, num_links=NUM_LINKS, encode=encode)
  return {name: data.parse({
      'source': os.fspath(folder / name), 'resolution': 224,
      'train_ops': workload.TRAIN_OPS}) for name in encoders}


def _pipelines(
    args: argparse.Namespace, sections: Mapping[str, data.DataConfig],
    others: Mapping[str, str], workers: int,
) -> Iterator[tuple[
    str, contextlib.AbstractContextManager[input_speed.Pipeline]]]:
  batch_size = args.batch_size or 64
  for name, section in sections.items():
    yield name, input_speed.ours(dataclasses.replace(
        section, num_workers=workers, prefetch=1,
        num_threads=1 if workers else section.num_threads),
                                 batch_size=batch_size)
  for name, python in others.items():
    yield name, input_speed.program([
        python, os.fspath(SCRIPT), name, sections[_OURS].source,
        str(max(1, workers)), str(sections[_OURS].size[0]), str(batch_size)])


def _parse_other(text: str) -> tuple[str, str]:
  name, _, python = text.partition('=')
  if name not in OTHER_PIPELINES:
    raise ValueError(
        f'--compare must be NAME=PYTHON, where NAME is one of '
        f'{", ".join(OTHER_PIPELINES)}; got {text!r}.')
  return name, python or sys.executable


def _ratio(
    name: str, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]],
) -> str:
  """Formats the CPU speed of pipeline `name` relative to that of a row."""
  if row['pipeline'] == name:
    return ''
  base = next(r for r in rows if r['pipeline'] == name
              and r['workers'] == row['workers'])
  return f'{base["images_per_cpu_sec"] / row["images_per_cpu_sec"]:.2f} x'


def benchmark_step(
    args: argparse.Namespace, folder: pathlib.Path) -> dict[str, Any]:
  """Measures starts and a training step, and returns the figures."""
  config = _step_config(args, folder)
  title = config.model.variant or args.config
  figures: dict[str, Any] = {
      'model': title, 'resolution': config.data.size,
      'batch_size': config.batch_size, 'dtype': config.model.dtype,
      'cpu_cores': os.cpu_count(), 'startups': None}
  # Starts first: this process keeps the accelerator once it has it.
  if rounds := args.starts or int(args.what == 'start'):
    startups = startup_time.measure(config, rounds=rounds)
    figures['startups'] = {
        kind: {name: dataclasses.asdict(value)
               for name, value in spreads.items()}
        for kind, spreads in startups.items()}
    step_report.show_startups(startups, rounds=rounds)
  if args.what == 'start':
    return figures
  experiment, sizes_from = build_without_data.build(config, jax.devices())
  found = step_speed.measure(
      experiment, rounds=args.rounds, repeats=args.batches,
      with_input=sizes_from == 'data')
  height, width = config.data.size
  step_report.show(f'{title} at {height} x {width}, batch '
                   f'{config.batch_size:,}, {config.model.dtype}', found)
  return {**figures, **dataclasses.asdict(found)}


def _step_config(
    args: argparse.Namespace, folder: pathlib.Path) -> config_lib.Config:
  """Returns the config to measure; of a config with stages, the first."""
  if bool(args.config) == bool(args.model):
    raise ValueError(
        f'--what={args.what} requires either --model, such as --model=B/16, '
        'or --config, such as --config=configs/pretrain.py.')
  if args.config:
    config = next(iter(load_config.load(args.config, args.overrides).values()))
    return dataclasses.replace(
        config, batch_size=args.batch_size or config.batch_size)
  synthetic_photos.write(folder / 'photos', NUM_PHOTOS, num_classes=1000)
  return workload.config(
      args.model, batch_size=args.batch_size or 8,
      source=os.fspath(folder / 'photos'), num_workers=int(args.workers),
      overrides=args.overrides)
