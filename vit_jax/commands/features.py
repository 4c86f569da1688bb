"""Writes the features of images, one row per image.

    python main.py features --model=runs/quickstart/finetune \
        --output=features.npz my_images/

Rows are in the order of the files, with their names. Unreadable files are
reported and skipped; the exit status is then 1.
"""

from __future__ import annotations

import argparse
from typing import Any

from etils import epy

from vit_jax.commands import arguments

with epy.lazy_imports():
  from vit_jax import console as console_lib
  from vit_jax.inference import predicted_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  arguments.add_images(parser)
  parser.add_argument(
      '--layer', default='representation', metavar='NAME[:N]',
      help='representation: input of the head; pooled: the same before the '
      'tanh layer, if there is one; cls: class token; mean: mean of the patch '
      'tokens; tokens: all tokens, as a matrix per image; patches: patch '
      'tokens, as a grid [rows, columns, width] per image; logits: output of '
      'the head. cls, mean, tokens and patches are taken after the final norm, '
      'or after layer N of 1 ... depth: patches:6 (default: %(default)s)')
  parser.add_argument(
      '--output', required=True, metavar='FILE',
      help='new .npz file with `features` and `path` of each image')
  arguments.add(parser, '--overwrite')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  arguments.check_output(args.output, ('.npz',), overwrite=args.overwrite)
  model = arguments.load_model(args)
  found, errors = arguments.find_images(args, model.run)
  shape, progress = predicted_files.write_features(
      model, found, errors, layer=args.layer, batch_size=args.batch_size,
      output=args.output, overwrite=args.overwrite)
  print(f'wrote {args.output}: {args.layer} '
        f'{" x ".join(f"{n:,}" for n in shape)} of '
        + console_lib.format_count(shape[0], 'image'))
  return progress.report(), {
      'output': args.output, 'layer': args.layer, 'shape': shape,
      'errors': progress.errors}
