"""Describes or checks a dataset, or prepares it for training.

    python main.py data describe ./my_images

`describe` prints how files are interpreted: splits, classes and their numbers
of images, sizes, some labels. If they do not open, it prints flags to paste.

    python main.py data check --source=./my_images --html=photos.html

`check` reports unreadable files, duplicates and suspicious labels of a source.

    python main.py data prepare --source=./my_images --to=tfds --name=photos
    python main.py --config=... --config.data.source=photos:1.0.0 \
        --config.data.data_dir=tfds

`prepare` writes any source as ArrayRecord shards in the format of TensorFlow
Datasets: a few large files instead of a million small ones. Repeat a stopped
command to continue it.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import time
from typing import Any

from etils import epy

from vit_jax import fields
from vit_jax.commands import arguments
from vit_jax.extras.curation.commands import flags

with epy.lazy_imports():
  from vit_jax import console
  from vit_jax import data
  from vit_jax.extras.curation import beam_runner
  from vit_jax.extras.curation import bit_depth
  from vit_jax.extras.curation import check as check_lib
  from vit_jax.extras.curation import describe as describe_lib
  from vit_jax.extras.curation import output
  from vit_jax.extras.curation import prepare
  from vit_jax.extras.curation import scan as scan_lib
  from vit_jax.extras.curation import similarity
  from vit_jax.inference import image_files
  from vit_jax.inference import load as load_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's tasks, with the flags of each."""
  tasks = parser.add_subparsers(dest='task', required=True, metavar='TASK')
  _add_describe(tasks)
  _add_check(tasks)
  _add_prepare(tasks)


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the task; returns the exit status and the results."""
  return args.run_task(args)


# -------------------------------------------------------------------- describe


def _add_describe(tasks: argparse._SubParsersAction) -> None:
  parser = tasks.add_parser(
      'describe', help='print how a dataset is interpreted',
      description='Prints how a dataset is interpreted: splits, classes with '
      'counts, sizes of images and some labels; or flags that open it.')
  flags.add_data(parser, positional=True)
  parser.set_defaults(run_task=_describe)


def _describe(args: argparse.Namespace) -> tuple[int, Any]:
  text, tables = describe_lib.describe(
      data.parse(flags.data_overrides(args)))
  console.print_lines(text)
  for title, columns, rows in tables:
    console.table(title, columns, rows)
  return 0, {'description': text, 'tables': tables}


# ----------------------------------------------------------------------- check


def _add_check(tasks: argparse._SubParsersAction) -> None:
  parser = tasks.add_parser(
      'check', help='report problems of a dataset, without changing it',
      description='Reads every example of all splits once and reports '
      'unreadable images, duplicates, suspicious labels, classes, sizes and '
      'formats.')
  flags.add_data(parser)
  parser.add_argument(
      '--html', default='', metavar='PATH',
      help='write a page with thumbnails')
  parser.add_argument(
      '--strict', action='store_true',
      help='exit with status 1 if images are unreadable or duplicated across '
      'splits, or a class folder has no images')
  parser.add_argument(
      '--max-examples', type=int, default=0, metavar='N',
      help='check a subset of this size, chosen by a hash of the keys; 0 '
      'checks all (default: %(default)s)')
  parser.add_argument(
      '--model', default='photos', metavar='PATH',
      help='find neighbours by the features of this model, as accepted by the '
      'features command (default: %(default)s, which is part of the package)')
  arguments.add(parser, '--which')
  flags.add(parser, '--max-distance', '--min-similarity')
  parser.set_defaults(run_task=_check)


def _check(args: argparse.Namespace) -> tuple[int, Any]:
  fields.check_range(args, 'max_examples')
  thresholds = similarity.Thresholds(args.max_distance, args.min_similarity)
  config = data.parse(flags.data_overrides(args))
  model = load_lib.load(args.model, which=args.which, log=None)
  request = scan_lib.prepare(
      config, max_examples=args.max_examples,
      embed=functools.partial(model.features, batch_size=64),
      min_side=2 * max(model.preprocess.resolution))
  request = dataclasses.replace(request, description='\n'.join(filter(None, [
      request.description, bit_depth.note(config, request.examples)])))
  with image_files.ReadProgress(len(request.examples)) as reading:
    report = check_lib.check(
        request, thresholds=thresholds, features=args.model,
        advance=reading.advance)
  output.show(report)
  if args.html:
    with image_files.ignore_pillow_warnings():
      output.write_report(report, request, args.html)
    print(f'Wrote {args.html}')
  return int(args.strict and report.harmful), report.to_json()


# --------------------------------------------------------------------- prepare


def _add_prepare(tasks: argparse._SubParsersAction) -> None:
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
  flags.add(parser, '--runner', '--runner-flags')
  parser.set_defaults(run_task=_prepare)


def _prepare(args: argparse.Namespace) -> tuple[int, Any]:
  fields.check_range(args, 'shard_mib', low=1)
  beam_runner.load(args.runner)  # Raises if it is not installed.
  start = time.monotonic()
  with image_files.ignore_pillow_warnings():
    planned = prepare.plan(
        flags.data_overrides(args),
        splits=[split for split in args.splits.split(',') if split],
        to=args.to, name=args.name,
        version=args.version, shard_bytes=args.shard_mib * 2**20,
        shorter_side=args.shorter_side)
    kept = prepare.begin(planned)
    _print_plan(planned, kept)
    prepare.write(planned, runner=args.runner, flags=args.runner_flags)
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
      f'Train with --config.data.source={planned.name}:{planned.version} '
      f'--config.data.data_dir={args.to}')
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
