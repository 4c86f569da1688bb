"""Finds examples of a data set that test sets hold too, to leave them out.

    python main.py deduplicate --source=./mine --against=cifar10,./mine:test \
        --to=runs/clean
    python main.py --config.data.exclude=runs/clean/exclude.txt ...

Near-duplicates are found whatever their format, size and brightness, mirrored
or not, and crops of at least 0.85 of each side of a test image: by perceptual
hash, then by their pixels. docs/data_cleaning.md says what is missed.
"""

import argparse
import dataclasses
import functools
import time
from typing import Any

from etils import epath
import numpy as np

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax.commands import arguments
from vit_jax.data import beam_runner as beam_runner_lib
from vit_jax.data.splits import overlap
from vit_jax.data.splits import selection as selection_lib
from vit_jax.inference import load
from vit_jax.inference import model as model_lib
from vit_jax.near_duplicates import blocks
from vit_jax.near_duplicates import features
from vit_jax.near_duplicates import report
from vit_jax.near_duplicates import search

_MODEL_BATCH = 64
_MANY = 0.1  # A share of the source that is hardly all near-duplicates.


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_data(parser)
  parser.add_argument(
      '--split', default='train', help='of the source (default: %(default)s)')
  parser.add_argument(
      '--against', required=True, metavar='DATA[:SPLIT],...',
      help='test sets, for example cifar10,oxford_iiit_pet:test; without a '
      'split, the one that results are published on')
  parser.add_argument(
      '--set-against', action='append', default=[], metavar='KEY=VALUE',
      help='a key of the section data that is another there; what --set says '
      'else holds for them, too')
  parser.add_argument(
      '--to', required=True, metavar='DIR',
      help=f'for {report.EXCLUDE}, {report.PAIRS} and {report.PAGE}; it must '
      'not exist')
  arguments.add_likeness(parser, blocks.Settings())
  parser.add_argument(
      '--no-crops', action='store_true',
      help='look for whole test images alone: ten times as fast to prepare')
  parser.add_argument(
      '--model', default='', metavar='PATH',
      help='also find what this model sees as alike: anything that `features` '
      'takes; each image of the source is then computed with')
  arguments.add_which(parser)
  parser.add_argument(
      '--min-cosine', type=float, default=0.95, metavar='R',
      help='of the features of a pair (default: %(default)s)')
  parser.add_argument(
      '--shown', type=int, default=60, metavar='N',
      help='pairs on the page (default: %(default)s)')
  arguments.add_runner(parser)


@arguments.data_flags()
def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  arguments.check_free(args.to)
  if args.runner != beam_runner_lib.LOCAL:
    beam_runner_lib.check_flags(args.runner_flags)
  settings = blocks.Settings(
      max_distance=args.max_distance, min_similarity=args.min_similarity,
      crops=not args.no_crops)
  methods = [blocks.by_pixels(settings)]
  if args.model:
    _load(args.model, args.which)  # If it cannot be, that is said at once.
    methods.append(features.by_features(features.Settings(
        functools.partial(_embed, args.model, args.which), args.min_cosine)))
  section = arguments.data_settings(args)
  source = selection_lib.of(args.source, args.split, section)
  against = _against(args, section)
  _check(source, against)
  start = time.monotonic()
  with atomic_files.create(args.to) as path:
    folder = epath.Path(path)
    folder.mkdir()
    # Workers elsewhere must see it: where the result goes, and not hidden here.
    result = functools.reduce(search.join, [search.search(
        source, against, method, folder=epath.Path(f'{args.to}.found'),
        runner=args.runner, flags=args.runner_flags) for method in methods])
    figures = _figures(source, against, settings, result)
    if args.model:
      figures |= {'model': args.model, 'min_cosine': args.min_cosine}
    _write(folder, args, source, against, result, figures)
  print(f'{len(result.pairs):,} of {figures["examples"]:,} examples of '
        f'{source.name} are near-duplicates; {result.candidates:,} pairs were '
        f'compared; {console_lib.format_secs(time.monotonic() - start)}')
  if len(result.pairs) > _MANY * figures['examples']:
    print('That is very many. If the page shows pictures that are only alike, '
          'ask for more with --min-similarity' + (
              ' and --min-cosine, or take a better model.' if args.model
              else '.'))
  print(f'wrote {args.to}: ' + (
      f'look at {report.PAGE}, then train with '
      f'--config.data.exclude={args.to}/{report.EXCLUDE}' if result.pairs
      else 'there is nothing to leave out'))
  if args.json:
    atomic_files.write_json(args.json, figures)
  return _report(result)


def _against(
    args: argparse.Namespace, section: dict[str, Any],
) -> list[selection_lib.Selection]:
  """Returns the test sets.

  Raises:
    ValueError: if there is no such one, its table is not like the source's, or
      only some of its examples are asked for.
  """
  own = arguments.overrides(args.set_against, flag='--set-against')
  if thinned := sorted(selection_lib.CHOICE & own.keys()):
    raise ValueError(
        f'--set-against={thinned[0]} chooses examples, but test sets are '
        'compared whole. Leave it out.')
  settings = arguments.overrides(
      args.set_against, flag='--set-against', onto=section)
  try:
    found = selection_lib.select_others(args.against, settings)
    for selection in found:
      selection.open()
  except ValueError as error:
    if not (args.set or args.set_against):
      raise
    raise ValueError(
        f'{error} What --set says of the source holds for every path of '
        '--against too, unless --set-against=KEY=VALUE says otherwise; both '
        'hold for all of them.') from error
  return found


@functools.lru_cache(maxsize=1)
def _load(path: str, which: str) -> model_lib.Model:
  """Returns the model; a worker loads it once."""
  return load.load(path, which=which, log=None)


def _embed(path: str, which: str, pictures: list[Any]) -> np.ndarray:
  """Returns a row of features of each picture."""
  return _load(path, which).features(pictures, batch_size=_MODEL_BATCH)


def _check(
    source: selection_lib.Selection,
    against: list[selection_lib.Selection]) -> None:
  """Says what is compared; raises where a test set is part of the source."""
  dataset = source.open()
  print(f'source: {source.name}, {len(dataset):,} examples')
  for selection in against:
    print(f'against: {selection.name}, {len(selection.open()):,} examples')
    if overlap.overlap(dataset, selection.open()):
      raise ValueError(
          f'{source.name} and {selection.name} have examples in common: the '
          'same files or numbers, not only the same pictures. Name splits '
          'that are apart.')


def _figures(
    source: selection_lib.Selection, against: list[selection_lib.Selection],
    settings: blocks.Settings, result: search.Result,
) -> dict[str, Any]:
  return {
      'source': source.name, 'examples': len(source.open()),
      'against': {s.name: len(s.open()) for s in against},
      'settings': dataclasses.asdict(settings),
      'near_duplicates': len(result.pairs), 'compared': result.candidates,
      'unreadable': result.unreadable}


def _write(
    folder: epath.Path, args: argparse.Namespace,
    source: selection_lib.Selection, against: list[selection_lib.Selection],
    result: search.Result, figures: dict[str, Any],
) -> None:
  report.write_keys(folder / report.EXCLUDE, result.pairs)
  report.write_pairs(folder / report.PAIRS, result.pairs)
  report.write_page(
      folder / report.PAGE, result.pairs, source, against, shown=args.shown,
      text=f'{len(result.pairs):,} of {figures["examples"]:,} examples, left, '
      'are near-duplicates of test images, right: '
      f'{", ".join(s.name for s in against)}. At most {args.max_distance} of '
      f'64 bits differ, and the pixels correlate by {args.min_similarity} or '
      'more.')
  atomic_files.write_json(folder / 'summary.json', figures)


def _report(result: search.Result) -> int:
  errors = list(result.unreadable.items())
  for name, error in errors[:arguments.MAX_ERRORS]:
    print(f'could not read {name}: {error}')
  if errors:
    print(f'could not be read, and were not compared: {len(errors):,} of the '
          'examples')
  return int(bool(errors))
