"""Classifies images with any model that `vit_jax.load` accepts.

    python main.py predict --model=runs/quickstart/finetune photos/ cat.jpg

Unreadable files, and images whose outputs are not finite, are reported and
skipped; the exit status is then 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
import contextlib
import csv
import dataclasses
import functools
import json
import os
from typing import Any

from etils import epy

from vit_jax.commands import arguments

with epy.lazy_imports():
  import numpy as np

  from vit_jax import atomic_files
  from vit_jax import console as console_lib
  from vit_jax import escape
  from vit_jax.inference import image_files
  from vit_jax.inference import model as model_lib
  from vit_jax.inference import predictions

# Images and classes of each in the table; a file has all of them.
_MAX_ROWS, _MAX_CLASSES = 50, 2
_MAX_LETTERS = 30  # Of a name, so that rows fit 80 columns.


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  arguments.add_images(parser)
  parser.add_argument(
      '--top-k', type=int, default=5, metavar='N',
      help='classes per image (default: %(default)s)')
  parser.add_argument(
      '--activation', choices=('softmax', 'sigmoid'),
      help='softmax for one class per image, sigmoid for several (default: as '
      'in the training loss, or softmax if it is unknown)')
  arguments.add(parser, '--flip', '--labels')
  parser.add_argument(
      '--output', default='', metavar='FILE',
      help='new .csv or .jsonl file for all predictions')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  arguments.check_output(args.output, ('.csv', '.jsonl'))
  found, errors = image_files.find(args.paths)
  model = arguments.load_model(args)
  if args.activation:
    model = dataclasses.replace(model, preprocess=dataclasses.replace(
        model.preprocess, activation=args.activation))
  convert = functools.partial(model.decode, top_k=args.top_k)
  # Raises for wrong settings before any image is read.
  example = _record('', convert(np.zeros((1, model.config.num_classes)))[0])
  records: list[dict[str, Any]] = []
  with image_files.ReadProgress(len(found), errors) as progress:
    for paths, outputs in model.outputs(
        found, batch_size=args.batch_size, flip=args.flip,
        on_error=progress.add_error):
      records += map(_record, paths, convert(outputs['logits']))
      progress.advance(len(paths))
  written = records + [{'path': path, 'error': error}
                       for path, error in progress.errors.items()]
  if args.output:
    _write(args.output, written, example)
    print(f'wrote {args.output}: '
          + console_lib.format_count(len(records), 'prediction'))
  if records:
    _print(model, records, args.output or '--output=FILE.csv')
  return progress.report(), written


def _record(
    path: Any, result: predictions.Prediction | predictions.Estimate,
) -> dict[str, Any]:
  """Returns JSON values with the `values` or `predictions` of an image."""
  if isinstance(result, predictions.Estimate):
    return {'path': str(path), 'values': dict(zip(result.names, result.values))}
  return {'path': str(path), 'predictions': [
      {'name': name, 'probability': value, 'index': index} for name, value,
      index in zip(result.names, result.probabilities, result.classes)]}


def _print(
    model: model_lib.Model, records: Sequence[Mapping[str, Any]], output: str,
) -> None:
  """Prints all classes of one image, or the first ones of several.

  `output` is the file with all predictions.
  """
  count = None if len(records) == 1 else _MAX_CLASSES
  folder = ''
  with contextlib.suppress(ValueError):  # Absolute and relative paths.
    folder = os.path.commonpath([os.path.dirname(r['path']) for r in records])
  columns, rows = ['image', 'class', 'probability'], []
  for record in records[:_MAX_ROWS]:
    path = record['path']
    name = _shorten(os.path.relpath(path, folder) if folder else path)
    if 'values' in record:
      columns = ['image', *record['values']]
      rows.append([name, *record['values'].values()])
    rows += [[name, _shorten(p['name']), f'{100 * p["probability"]:.1f} %']
             for p in record.get('predictions', ())[:count]]
  console_lib.table(
      console_lib.format_count(len(records), 'image')
      + f' in {escape.line(folder)}' * bool(folder)
      + ', independent class probabilities (sigmoid)' * (
          model.preprocess.activation == 'sigmoid'), columns, rows)
  print(f'At most {_MAX_ROWS} images and {_MAX_CLASSES} classes are shown; '
        f'{output} has all.' if count else '')


def _shorten(text: str) -> str:
  return console_lib.shorten(escape.line(text), _MAX_LETTERS)


def _write(
    target: str, records: Sequence[Mapping[str, Any]],
    example: Mapping[str, Any],
) -> None:
  """Writes .csv or .jsonl; bytes that are not UTF-8 are escaped as \\udcff.

  In .csv, text that a spreadsheet would calculate gets an apostrophe.
  """
  with atomic_files.create(target) as path, open(
      path, 'w', newline='', encoding='utf-8',
      errors='backslashreplace') as file:
    if target.endswith('.jsonl'):
      file.writelines(json.dumps(record, allow_nan=False) + '\n'
                      for record in records)
      return
    lines = csv.DictWriter(file, [*_flatten(example), 'error'])
    lines.writeheader()
    lines.writerows(map(_flatten, records))


def _flatten(record: Mapping[str, Any]) -> dict[str, Any]:
  """Returns cells by column, such as 'name_1' of the most likely class."""
  cells = {
      **{key: record[key] for key in ('path', 'error') if key in record},
      **record.get('values', {}),
      **{f'{key}_{i}': value
         for i, found in enumerate(record.get('predictions', ()), start=1)
         for key, value in found.items()}}
  return {escape.csv_cell(key): escape.csv_cell(value)
          for key, value in cells.items()}
