"""Finds training examples that are near-duplicates of test images.

    python main.py deduplicate --source=./mine --against=cifar10,./mine:test \
        --to=runs/clean
    python main.py --config.data.exclude=runs/clean/exclude.txt ...

Copies may differ in format, size and brightness, be mirrored, or be crops of at
least 0.85 of each side. See docs/data_cleaning.md.
"""

from __future__ import annotations

import argparse
import shlex
import time
from typing import Any

from etils import epy

from vit_jax.extras.curation.commands import flags

with epy.lazy_imports():
  from etils import epath

  from vit_jax import atomic_files
  from vit_jax import console
  from vit_jax.extras.curation import beam_runner
  from vit_jax.extras.curation import output
  from vit_jax.extras.curation import search
  from vit_jax.extras.curation import selection as selection_lib
  from vit_jax.inference import image_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  flags.add_data(parser)
  parser.add_argument(
      '--split', default='train',
      help='split of the source (default: %(default)s)')
  parser.add_argument(
      '--against', required=True, metavar='DATA[:SPLIT],...',
      help='test sets, for example cifar10,oxford_iiit_pet:test; the default '
      'split is that on which published results are reported; of other files '
      'without splits, all images')
  parser.add_argument(
      '--to', required=True, metavar='DIR',
      help='new folder for exclude.txt, pairs.jsonl and pairs.html')
  flags.add(parser, '--max-distance', '--min-similarity')
  parser.add_argument(
      '--no-crops', action='store_true',
      help='do not search for crops of test images; indexing is ten times as '
      'fast')
  flags.add(parser, '--runner', '--runner-flags')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  atomic_files.check_absent(epath.Path(args.to))
  beam_runner.load(args.runner)  # Raises if it is not installed.
  settings = search.Settings(
      args.max_distance, args.min_similarity, crops=not args.no_crops)
  section = flags.data_overrides(args)
  source = selection_lib.build(section['source'], args.split, section)
  against = selection_lib.parse_others(args.against, section)
  print(f'source: {source.name}, {len(source.open()):,} examples')
  for selection in against:
    print(f'against: {selection.name}, {len(selection.open()):,} examples')
    source.check_disjoint(selection)
  start = time.monotonic()
  with atomic_files.create(args.to) as path:
    folder = epath.Path(path)
    folder.mkdir()
    # Beside the output: Beam workers on other machines must see the folder.
    found = search.search(
        source, against, settings,
        folder=epath.Path(args.to.rstrip('/') + '.found'),
        runner=args.runner, flags=args.runner_flags)
    summary = output.write_search(folder, source, against, settings, found)
  _print(args, summary, secs=time.monotonic() - start)
  return image_files.ReadProgress(0, found.unreadable).report(), summary


def _print(
    args: argparse.Namespace, summary: dict[str, Any], *, secs: float,
) -> None:
  count, examples = summary['near_duplicates'], summary['examples']
  console.print_lines(
      f'Near-duplicates: {count:,} of {examples:,} examples of '
      f'{summary["source"]}; '
      f'{console.format_count(summary["compared"], "pair")} compared in '
      f'{console.format_secs(secs)}')
  console.print_lines(f'Wrote {args.to}: ' + (
      f'review {output.PAGE} (if pairs are merely similar, raise '
      '--min-similarity), then train with '
      f'--config.data.exclude={shlex.quote(args.to)}/{output.EXCLUDE}' if count
      else 'there is nothing to exclude'))
