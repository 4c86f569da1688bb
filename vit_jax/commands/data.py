"""Checks a data set, or prepares it for training: `data check` and `prepare`.

    python main.py data check --source=./photos --html=photos.html

What is wrong with any source: files that cannot be read, duplicates, suspicious
labels. Nothing is changed.

    python main.py data prepare --source=./photos --to=tfds --name=photos
    python main.py --config=... --config.data.source=photos:1.0.0 \
        --config.data.data_dir=tfds

Any source becomes shards of random access, as TensorFlow Datasets writes them:
a few large files in place of a million small ones. Stopped anywhere, the same
command goes on.
"""

import argparse
from collections.abc import Iterator
import contextlib
import functools
import re
import threading
import time

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax import data
from vit_jax.check import check
from vit_jax.check import page
from vit_jax.check import suspicious_labels
from vit_jax.check import terminal
from vit_jax.commands import arguments
from vit_jax.data import beam_runner as beam_runner_lib
from vit_jax.data.fingerprints import similarity
from vit_jax.inference import load
from vit_jax.prepare import images
from vit_jax.prepare import prepare

_MODEL_BATCH = 64
_TELL_SECS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's tasks, with the flags of each."""
  tasks = parser.add_subparsers(dest='task', required=True, metavar='TASK')
  _add_check(tasks)
  _add_prepare(tasks)


@arguments.data_flags()
def run(args: argparse.Namespace) -> int:
  """Runs the task; returns the exit status."""
  return args.run_task(args)


# ----------------------------------------------------------------------- check


def _add_check(tasks: argparse._SubParsersAction) -> None:
  parser = tasks.add_parser(
      'check', help='report problems of any dataset; nothing is changed',
      description='Reads every example of all splits once and reports '
      'unreadable images, duplicates, suspicious labels, classes, sizes and '
      'formats.')
  arguments.add_data(parser)
  parser.add_argument(
      '--html', default='', metavar='PATH',
      help='write a page with thumbnails, at most '
      f'{page.MAX_BYTES / 2**20:.0f} MiB of them')
  parser.add_argument(
      '--strict', action='store_true',
      help='exit with status 1 if images are unreadable or duplicated across '
      'splits')
  parser.add_argument(
      '--max-examples', type=int, default=0, metavar='N',
      help='check a subset chosen by a hash of the keys; 0 for all '
      '(default: %(default)s)')
  parser.add_argument(
      '--model', default='', metavar='PATH',
      help='find neighbours by the features of this model, anything that the '
      'features command takes (default: colours and edges, which is weak)')
  arguments.add_which(parser)
  arguments.add_likeness(parser, similarity.Likeness())
  labels = suspicious_labels.Settings()
  parser.add_argument(
      '--neighbours', type=int, default=labels.neighbours, metavar='N',
      help='neighbours that vote on a label (default: %(default)s)')
  parser.add_argument(
      '--min-margin', type=float, default=labels.min_margin, metavar='R',
      help='smallest share of votes by which another class must lead '
      '(default: %(default)s)')
  parser.set_defaults(run_task=_check)


def _check(args: argparse.Namespace) -> int:
  settings = check.Settings(
      similarity.Likeness(args.max_distance, args.min_similarity),
      suspicious_labels.Settings(args.neighbours, args.min_margin))
  config = data.parse(
      {**arguments.data_settings(args), 'source': args.source})
  embed, min_side = None, 0
  if args.model:
    model = load.load(args.model, which=args.which, log=None)
    embed = functools.partial(model.features, batch_size=_MODEL_BATCH)
    min_side = 2 * max(model.preprocess.resolution)
  request = check.prepare(
      config, max_examples=args.max_examples, embed=embed, min_side=min_side)
  with arguments.Reading(len(request)) as reading:
    report = check.run(
        request, settings, features=args.model or check.DEFAULT_FEATURES,
        advance=reading.advance, failed=reading.failed)
  terminal.show(report)
  print(f'Read {arguments.counted(len(request), "example")}, '
        f'{1e3 * report.secs_per_image:,.1f} ms each.')
  if args.html:
    with arguments.quiet_pictures():
      page.write(report, request, args.html)
    print(f'Wrote {args.html}')
  if args.json:
    atomic_files.write_json(args.json, report.to_json())
  return int(args.strict and report.harmful)


# --------------------------------------------------------------------- prepare


def _add_prepare(tasks: argparse._SubParsersAction) -> None:
  parser = tasks.add_parser(
      'prepare', help='write any data set as shards, and prove them',
      description='Writes any data set as shards of ArrayRecord, in the form '
      'of TensorFlow Datasets, and reads each back.')
  arguments.add_data(parser)
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
  parser.add_argument(
      '--shorter-side', type=int, default=0, metavar='N',
      help='make images smaller whose shorter side has more pixels than N: a '
      'JPEG becomes a JPEG whose crops are read alone, all else PNG (default: '
      'files stay as they are)')
  parser.add_argument(
      '--quality', type=int, metavar='N',
      help='of JPEGs that are made smaller, 1 to 100 (default: '
      f'{images.QUALITY})')
  arguments.add_runner(parser)
  parser.set_defaults(run_task=_prepare)


def _prepare(args: argparse.Namespace) -> int:
  if args.shard_mib < 1:
    raise ValueError(f'--shard-mib must be at least 1; got {args.shard_mib}.')
  if args.runner != beam_runner_lib.LOCAL:
    beam_runner_lib.check_flags(args.runner_flags)
  with arguments.quiet_pictures():
    return _write(args)


def _write(args: argparse.Namespace) -> int:
  start = time.monotonic()
  settings = {**arguments.data_settings(args), 'source': args.source}
  planned = prepare.plan(
      settings, splits=[split for split in args.splits.split(',') if split],
      to=args.to, name=args.name or _name_of(args.source),
      version=args.version, shard_bytes=args.shard_mib * 2**20,
      pictures=images.of(
          data.parse(settings), shorter_side=args.shorter_side,
          quality=args.quality))
  done = prepare.begin(planned)
  if planned.understood:
    print(planned.understood)
  for split, shards in planned.shards.items():
    print(f'{split}: {arguments.counted(shards[-1].last, "example")} in '
          f'{arguments.counted(len(shards), "shard")}')
  if done:
    print(f'{done:,} of {len(planned.all_shards):,} shards were finished '
          'before, and are kept')
  with _telling(planned):
    prepare.write(planned, runner=args.runner, flags=args.runner_flags)
  facts = prepare.finish(planned)
  prepare.verify(planned)
  if args.shorter_side:
    smaller, total = (sum(shard[what] for shard in facts.values())
                      for what in ('smaller', 'examples'))
    print(f'{smaller:,} of {total:,} images were made smaller'
          + '; the others had no more pixels, have 16 bits or cannot be read'
          * (smaller < total))
  size = sum(shard['file_bytes'] for shard in facts.values())
  print(f'wrote {planned.folder}: {size / 2**20:,.1f} MiB, each shard read '
        f'back and compared; {console_lib.format_secs(time.monotonic() - start)}')
  print(f'train with --config.data.source={planned.name}:{planned.version} '
        f'--config.data.data_dir={args.to}')
  if args.json:
    atomic_files.write_json(args.json, {
        'folder': planned.folder, 'kept': done, 'shards': facts})
  return 0


@contextlib.contextmanager
def _telling(planned: prepare.Plan) -> Iterator[None]:
  """Says now and then how many shards there are, whoever writes them."""
  ended, total = threading.Event(), len(planned.all_shards)

  def tell() -> None:
    said = prepare.count_finished(planned)
    start = time.monotonic()
    while not ended.wait(_TELL_SECS):
      done = prepare.count_finished(planned)
      if done > said:
        secs = console_lib.format_secs(time.monotonic() - start)
        print(f'{done:,} of {total:,} shards are written; {secs}', flush=True)
      said = done

  thread = threading.Thread(target=tell, daemon=True)
  thread.start()
  try:
    yield
  finally:
    ended.set()
    thread.join()


def _name_of(source: str) -> str:
  """Returns a name for what a folder, a file or a data set is called."""
  base = source.rstrip('/').split('/')[-1].split(':')[0]
  # Of many files, what all their names begin with: 'train-{000..146}.tar'.
  base = re.sub(r'\{.*\}|\[.*\]', '', base).split('.')[0]
  return re.sub(r'\W+', '_', base).strip('_').lower()
