"""Writes a dataset as ArrayRecord shards: `data prepare`."""

from __future__ import annotations

import argparse
import shlex
import time
from typing import Any

from etils import epy

from vit_jax import fields
from vit_jax.extras.curation.commands import flags

with epy.lazy_imports():
  from vit_jax import console
  from vit_jax.extras.curation import beam_runner
  from vit_jax.extras.curation import prepare
  from vit_jax.inference import image_files


def add_to(tasks: argparse._SubParsersAction) -> None:
  """Adds the task with its flags."""
  parser = tasks.add_parser(
      'prepare', help='write a dataset as verified ArrayRecord shards',
      description='Writes a dataset as ArrayRecord shards in the format of '
      'TensorFlow Datasets, and verifies each shard.')
  flags.add_data(parser)
  parser.add_argument(
      '--to', required=True, metavar='DIR',
      help='folder of prepared datasets; writes DIR/NAME/VERSION')
  parser.add_argument(
      '--name', required=True, metavar='NAME', help='dataset name')
  parser.add_argument(
      '--version', default='1.0.0',
      help='dataset version (default: %(default)s)')
  parser.add_argument(
      '--splits', default='', metavar='SPLIT,...',
      help='splits to write (default: all)')
  parser.add_argument(
      '--shard-mib', type=int, default=256, metavar='N',
      help='approximate shard size in MiB (default: %(default)s)')
  parser.add_argument(
      '--shorter-side', type=int, default=0, metavar='N',
      help='reduce images whose shorter side has more than N pixels, and store '
      'them as JPEG if they were JPEG, otherwise as PNG (default: store all '
      'files unchanged)')
  flags.add(parser, *flags.TEACHER, '--runner', '--runner-flags')
  parser.set_defaults(run_task=run)


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the task; returns the exit status and the results."""
  fields.check_range(args, 'shard_mib', low=1)
  beam_runner.load(args.runner)  # Raises if it is not installed.
  start = time.monotonic()
  settings = flags.data_overrides(args)
  with image_files.ignore_pillow_warnings():
    taught, outputs = flags.open_outputs(args, settings)
    planned = prepare.plan(
        settings, splits=[name for name in args.splits.split(',') if name],
        to=args.to, name=args.name, version=args.version,
        shard_bytes=args.shard_mib * 2**20,
        shorter_side=args.shorter_side, taught=taught)
    kept = prepare.begin(planned)
    _print_plan(planned, kept)
    prepare.write(planned, runner=args.runner, flags=args.runner_flags,
                  outputs=outputs)
    shards, unreadable = prepare.finish(planned)
  if unreadable:
    console.print_lines(unreadable)
  size = sum(facts['record_bytes'] for facts in shards.values())
  counts = ', '.join(
      f'{split} {sum(shards[shard.name]["examples"] for shard in of_split):,}'
      for split, of_split in planned.shards.items())
  console.print_lines(
      f'Wrote {planned.folder}: {counts} examples, '
      f'{console.format_bytes(size)}, in '
      f'{console.format_secs(time.monotonic() - start)}\n'
      f'Train with {planned.flags} '
      f'--config.data.data_dir={shlex.quote(args.to)}')
  return 0, {'folder': planned.folder, 'kept': kept, 'shards': shards}


def _print_plan(planned: prepare.Plan, kept: int) -> None:
  if planned.description:
    console.print_lines(planned.description)
  for split, shards in planned.shards.items():
    print(f'{split}: {console.format_count(shards[-1].last, "example")} to '
          f'read, in {console.format_count(len(shards), "shard")}')
  if kept:
    print(f'{kept:,} of {len(planned.all_shards):,} shards were finished '
          'before and are kept')
