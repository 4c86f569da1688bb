"""Classifies images with any model that `vit_jax.load` accepts.

    python main.py predict --model=runs/quickstart/finetune photos/ cat.jpg

Unreadable files are reported and skipped; the exit status is then 1.
"""

import argparse
from collections.abc import Generator, Mapping
import contextlib
import csv
import dataclasses
import functools
import json
import os
from typing import Any, IO

from etils import epath
import numpy as np

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax.commands import arguments
from vit_jax.inference import image_files
from vit_jax.inference import model as model_lib
from vit_jax.inference import predictions

_MAX_ROWS = 50  # Rows of the table; a file has all of them.
_MAX_CLASSES = 3  # Classes in a row of the table.

Results = dict[str, Any]  # A `Prediction` or `Estimate` by path.


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  arguments.add_images(parser)
  parser.add_argument(
      '--top-k', type=int, default=5, metavar='N',
      help='classes per image (default: %(default)s)')
  parser.add_argument(
      '--activation', choices=tuple(predictions.ACTIVATIONS),
      help='softmax for one class per image, sigmoid for several (default: '
      'that of the training loss, or softmax if unknown)')
  parser.add_argument(
      '--labels', default='', metavar='FILE',
      help='class names, one per line, if the weights have none')
  parser.add_argument(
      '--output', default='', metavar='FILE',
      help='new .csv or .jsonl file for all predictions')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  arguments.check_output(args.output, ('.csv', '.jsonl'))
  errors: dict[str, str] = {}
  found = image_files.find(args.paths, errors)
  model = arguments.load_model(args)
  if args.labels:
    model = _replace(model, labels=_read_labels(model, args.labels))
  if args.activation:
    model = _replace(model, activation=args.activation)
  convert: Any = (model.estimates if model.is_regression else
                  functools.partial(model.top_classes, top_k=args.top_k))
  # Raises for wrong settings before any image is read.
  names = convert(np.zeros((1, model.config.num_classes)))[0].names
  results: Results = {}
  with image_files.ReadProgress(len(found), errors) as progress:
    for paths, outputs in model.outputs(
        found, batch_size=args.batch_size, on_error=progress.add_error):
      results |= zip(map(str, paths), convert(outputs['logits']))
      progress.advance(len(paths))
  if args.output:
    _write(args.output, results, progress.errors, names)
    print(f'wrote {args.output}: '
          + console_lib.format_count(len(results), 'prediction'))
  if args.json:
    atomic_files.write_json(args.json, _records(results, progress.errors))
  if results:
    _print(model, results, names, args.output or '--output')
  return progress.report()


def _replace(model: model_lib.Model, **changes: Any) -> model_lib.Model:
  return dataclasses.replace(
      model, preprocess=dataclasses.replace(model.preprocess, **changes))


def _read_labels(model: model_lib.Model, path: str) -> tuple[str, ...]:
  try:
    text = epath.Path(path).read_text(encoding='utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(f'{path} is not text in UTF-8: {error}.') from error
  names = tuple(text.strip().splitlines())
  if len(names) != model.config.num_classes:
    raise ValueError(
        f'{path} holds {console_lib.format_count(len(names), "name")} (one a '
        f'line), but the model has {model.config.num_classes:,} classes.')
  return names


def _print(
    model: model_lib.Model, results: Results, names: tuple[str, ...],
    output: str,
) -> None:
  """Prints a table; `output` is where all predictions are."""
  folder = _common_folder(results)
  rows = []
  for path, result in list(results.items())[:_MAX_ROWS]:
    row: list[Any] = [image_files.printable(
        os.path.relpath(path, folder) if folder else path)]
    if model.is_regression:
      row += result.values
    else:
      for name, value in list(
          zip(result.names, result.probabilities))[:_MAX_CLASSES]:
        row += [name, f'{100 * value:.1f} %']
    rows.append(row)
  columns = ['image', *names]
  if not model.is_regression:
    shown = range(1, min(_MAX_CLASSES, len(names)) + 1)
    columns = ['image', *(text for i in shown for text in (f'{i}.', ''))]
  console_lib.table(
      console_lib.format_count(len(results), 'image')
      + f' in {image_files.printable(folder)}' * bool(folder)
      + ', independent class probabilities (sigmoid)' * (
          model.preprocess.activation == 'sigmoid'), columns, rows)
  if len(results) > _MAX_ROWS:
    print(f'... and {len(results) - _MAX_ROWS:,} more: see {output}')
  if not model.is_regression and len(names) > _MAX_CLASSES:
    print(f'Top {_MAX_CLASSES} of {len(names)} classes: for all see {output}')


def _common_folder(results: Results) -> str:
  try:
    return os.path.commonpath(list(map(os.path.dirname, results)))
  except ValueError:  # Absolute and relative paths.
    return ''


def _write(
    target: str, results: Results, errors: Mapping[str, str],
    names: tuple[str, ...],
) -> None:
  with _open_text(target) as file:
    if target.endswith('.jsonl'):
      file.writelines(
          json.dumps(record) + '\n' for record in _records(results, errors))
      return
    is_regression = any(
        isinstance(r, predictions.Estimate) for r in results.values())
    columns = [*names] if is_regression else [
        f'{key}_{i + 1}' for i in range(len(names))
        for key in ('name', 'probability', 'class')]
    lines = csv.writer(file)
    lines.writerow(['path', *columns, 'error'])
    for path, r in results.items():
      cells = r.values if is_regression else [
          cell for row in zip(r.names, r.probabilities, r.classes)
          for cell in row]
      lines.writerow([path, *cells, ''])
    for path, error in errors.items():
      lines.writerow([path, *[''] * len(columns), error])


@contextlib.contextmanager
def _open_text(target: str) -> Generator[IO[str], None, None]:
  """Opens a text file that appears when it is complete.

  Bytes of file names that are not UTF-8 are escaped as \\udcff.
  """
  with atomic_files.create(target) as path, open(
      path, 'w', newline='', encoding='utf-8',
      errors='backslashreplace') as file:
    yield file


def _records(
    results: Results, errors: Mapping[str, str]) -> list[dict[str, Any]]:
  records: list[dict[str, Any]] = []
  for path, r in results.items():
    if isinstance(r, predictions.Estimate):
      records.append({'path': path, 'values': dict(zip(r.names, r.values))})
    else:
      records.append({'path': path, 'predictions': [
          {'name': name, 'probability': value, 'class': index}
          for name, value, index in zip(r.names, r.probabilities, r.classes)]})
  for path, error in errors.items():
    records.append({'path': path, 'error': error})
  return records
