"""Prepares a data set for training: `data prepare`.

    python main.py data prepare --source=./photos --to=tfds --name=photos
    python main.py --config=... --config.data.source=photos:1.0.0 \
        --config.data.data_dir=tfds

Any source becomes shards of random access, as TensorFlow Datasets writes them:
a few large files in place of a million small ones. Stopped anywhere, the same
command goes on.
"""

import argparse
import re
import time

from vit_jax import command_line
from vit_jax.parallel import beam as beam_lib
from vit_jax.prepare import writing
from vit_jax.training import progress
from vit_jax.training import writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's tasks, with the flags of each."""
  tasks = parser.add_subparsers(dest='task', required=True, metavar='TASK')
  _add_prepare(tasks)


def run(args: argparse.Namespace) -> int:
  """Runs the task; returns the exit status."""
  return args.run_task(args)


# --------------------------------------------------------------------- prepare


def _add_prepare(tasks: argparse._SubParsersAction) -> None:
  parser = tasks.add_parser(
      'prepare', help='write any data set as shards, and prove them',
      description='Writes any data set as shards of ArrayRecord, in the form '
      'of TensorFlow Datasets, and reads each back.')
  command_line.add_data(parser)
  parser.add_argument(
      '--to', required=True, metavar='DIR',
      help='directory of prepared data sets: DIR/NAME/VERSION is written')
  parser.add_argument(
      '--name', default='', metavar='NAME',
      help='what to call it (default: what the source is called)')
  parser.add_argument(
      '--version', default='1.0.0', help='default: %(default)s')
  parser.add_argument(
      '--splits', default='', metavar='SPLIT,...',
      help='which to write (default: all)')
  parser.add_argument(
      '--shard-mib', type=int, default=256, metavar='N',
      help='about how large a shard is, in MiB (default: %(default)s)')
  command_line.add_runner(parser)
  parser.set_defaults(run_task=_prepare)


def _prepare(args: argparse.Namespace) -> int:
  if args.shard_mib < 1:
    raise ValueError(f'--shard-mib must be at least 1; got {args.shard_mib}.')
  if args.runner != beam_lib.LOCAL:
    beam_lib.check_flags(args.runner_flags)
  start = time.monotonic()
  planned = writing.plan(
      {**command_line.data_settings(args), 'source': args.source},
      splits=[split for split in args.splits.split(',') if split],
      to=args.to, name=args.name or _name_of(args.source),
      version=args.version, shard_bytes=args.shard_mib * 2**20)
  done = writing.begin(planned)
  for split, shards in planned.shards.items():
    print(f'{split}: {shards[-1].last:,} examples in {len(shards):,} '
          f'shard{"s" * (len(shards) > 1)}')
  if done:
    print(f'{done:,} of {len(planned.all_shards):,} shards were finished '
          'before, and are kept')
  writing.write(planned, runner=args.runner, flags=args.runner_flags)
  facts = writing.finish(planned)
  writing.verify(planned)
  size = sum(shard['file_bytes'] for shard in facts.values())
  print(f'wrote {planned.folder}: {size / 2**20:,.1f} MiB, each shard read '
        f'back and compared; {progress.format_secs(time.monotonic() - start)}')
  print(f'train with --config.data.source={planned.name}:{planned.version} '
        f'--config.data.data_dir={args.to}')
  if args.json:
    writer.write_json(args.json, {
        'folder': planned.folder, 'kept': done, 'shards': facts})
  return 0


def _name_of(source: str) -> str:
  """Returns a name for what a folder, a file or a data set is called."""
  base = source.rstrip('/').split('/')[-1].split(':')[0].split('.')[0]
  return re.sub(r'\W+', '_', base).strip('_').lower()
