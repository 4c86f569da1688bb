"""Flags of `data prepare` for outputs of teachers."""

import argparse
from collections.abc import Mapping
from typing import Any

_FLAGS: Mapping[str, Mapping[str, Any]] = {
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


def add_to(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  for name, options in _FLAGS.items():
    parser.add_argument(name, **options)


def open_outputs(
    args: argparse.Namespace, settings: Mapping[str, Any]) -> tuple[Any, Any]:
  """Opens the teachers of the flags; see `taught.open_outputs`."""
  from vit_jax.extras.curation import taught
  return taught.open_outputs(
      settings, teachers=args.teacher, resolutions=args.teacher_resolution,
      patches=not args.no_patches, crops=args.crops, seed=args.seed,
      runner=args.runner)
