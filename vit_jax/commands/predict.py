"""Classifies images with any model that `vit_jax.load` accepts.

    python main.py predict --model=runs/quickstart/finetune my_images/ cat.jpg
    python main.py predict --model=runs/mine test.csv --output=predictions.csv
    python main.py predict --model=runs/segmentation street/ --masks=predicted
    python main.py predict --model=runs/mine my_images/ --mistakes=mistakes.csv

Unreadable files, and images whose outputs are not finite, are reported and
skipped; the exit status is then 1.
"""

from __future__ import annotations

import argparse
from typing import Any

from etils import epy

from vit_jax import fields
from vit_jax import registry
from vit_jax.commands import arguments

with epy.lazy_imports():
  from vit_jax import console as console_lib
  from vit_jax.inference import predicted_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  arguments.add_images(parser)
  parser.add_argument(
      '--top-k', type=int, default=5, metavar='N',
      help='classes per image in .jsonl and --json; .csv has all (default: '
      '%(default)s)')
  arguments.add(parser, '--flip', '--labels')
  parser.add_argument(
      '--output', default='', metavar='FILE',
      help='new .csv or .jsonl file for all predictions')
  parser.add_argument(
      '--masks', default='', metavar='DIR',
      help='new folder for the masks of a segmentation model: masks/ with the '
      'classes of the pixels, and overlays/')
  arguments.add(parser, '--overwrite')
  if registry.exists(registry.MISTAKES):
    parser.add_argument(
        '--mistakes', default='', metavar='FILE.csv',
        help='new .csv file with the images whose predicted class is not their '
        'label, the most confident ones first; labels are those of class '
        'folders or of a table')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  mistakes, correct = registry.optional(registry.MISTAKES), None
  arguments.check_output(
      args.output, ('.csv', '.jsonl'), overwrite=args.overwrite)
  if mistakes:
    mistakes.check_output(args)
  fields.check_range(args, 'top_k', low=1)
  model = arguments.load_model(args)
  found, errors = arguments.find_images(args, model.run)
  if mistakes:
    found = mistakes.with_folders(found, args.paths, model)
    correct = mistakes.judge(found, model, required=bool(args.mistakes))
  records, progress = predicted_files.predict(
      model, found, errors, batch_size=args.batch_size, top_k=args.top_k,
      flip=args.flip, output=args.output, masks=args.masks, correct=correct,
      overwrite=args.overwrite)
  predicted = [record for record in records if 'error' not in record]
  table = predicted_files.table(model, predicted, found)
  if args.output:
    print(f'wrote {args.output}: '
          + console_lib.format_count(len(predicted), 'prediction'))
  if args.masks:
    print(f'wrote {args.masks}: masks/ and overlays/ of {table.images}')
  console_lib.table(table.title, table.headings, table.rows)
  if table.limits:
    print(f'At most {table.limits} are shown; '
          f'{args.output or "--output=FILE.csv"} has all.')
  if correct:
    correct.report(predicted, args.mistakes, overwrite=args.overwrite)
  return progress.report(), records
