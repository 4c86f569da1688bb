"""Flags of the commands on data, and their values."""

import argparse
from collections.abc import Mapping
import shlex
from typing import Any

from vit_jax.commands import arguments

_FLAGS: Mapping[str, Mapping[str, Any]] = {
    '--max-distance': dict(
        type=int, default=7, metavar='BITS',
        help='maximum Hamming distance of the 64-bit hashes of '
        'near-duplicates, up to 11 (default: %(default)s)'),
    '--min-similarity': dict(
        type=float, default=0.9, metavar='R',
        help='minimum pixel correlation of near-duplicates, up to 1 '
        '(default: %(default)s)'),
    '--runner': dict(
        default='local', metavar='NAME',
        help="'local', in this process (the default), or the name of an Apache "
        "Beam runner (pip install '.[beam]')"),
    '--runner-flags': dict(
        type=shlex.split, default=[], metavar='FLAGS',
        help='flags of the Beam runner, in quotes. To use all cores: '
        "--runner=DirectRunner --runner-flags='--direct_num_workers=0 "
        "--direct_running_mode=multi_processing'"),
    '--teacher': dict(
        default='', metavar='ADDRESS,...',
        help='store images cropped and resized as a student sees them '
        '(--config.data.resolution), with the outputs of these teachers, which '
        'distill_features then reads; docs/distillation.md'),
    '--teacher-resolution': dict(
        default='', metavar='N,...',
        help='size in pixels of the images that each teacher sees (default: '
        'those of their weights)'),
    '--no-patches': dict(
        action='store_true',
        help='store no patch features of teachers, which take the most space'),
    '--crops': dict(
        type=int, default=1, metavar='K',
        help='random crops of each training image, by '
        '--config.data.train_ops (default: one image, by data.eval_ops)'),
    '--seed': dict(
        type=int, default=0, metavar='N', help='seed of the crops'),
}
TEACHER = ('--teacher', '--teacher-resolution', '--no-patches', '--crops',
           '--seed')


def add(parser: argparse.ArgumentParser, *names: str) -> None:
  """Adds flags of `_FLAGS`."""
  for name in names:
    parser.add_argument(name, **_FLAGS[name])


def add_data(
    parser: argparse.ArgumentParser, *, positional: bool = False) -> None:
  """Adds the flags of a dataset: --source and others for `data_overrides`."""
  what = 'dataset, as in data.source: a folder, a TFDS name, ...'
  if positional:
    parser.add_argument('source', metavar='SOURCE', help=what)
  else:
    parser.add_argument('--source', required=True, metavar='DATA', help=what)
  parser.add_argument(
      '--data-dir', default='', metavar='DIR',
      help='TFDS directory (default: $TFDS_DATA_DIR or ~/tensorflow_datasets)')
  parser.add_argument(
      '--set', action='append', default=[], metavar='KEY=VALUE',
      help='set another field of the section data, as --config.data.KEY=VALUE '
      'does: table.label=breed')


def data_overrides(args: argparse.Namespace) -> dict[str, Any]:
  """Returns the fields of the section `data` given by `add_data`'s flags.

  These are also read from --config.data.key=value, as messages name them.
  """
  return {'source': args.source, 'data_dir': args.data_dir,
          **arguments.data_keys(args, args.set)}


def open_outputs(
    args: argparse.Namespace, settings: Mapping[str, Any]) -> tuple[Any, Any]:
  """Opens the teachers of the flags; see `taught.open_outputs`."""
  from vit_jax.extras.curation import taught
  return taught.open_outputs(
      settings, teachers=args.teacher, resolutions=args.teacher_resolution,
      patches=not args.no_patches, crops=args.crops, seed=args.seed,
      runner=args.runner)
