"""Classifies pictures with any model that `vit_jax.load` takes.

    python main.py predict --model=runs/quickstart/finetune photos/ cat.jpg

Files, folders (with all below them) and globs. A file that cannot be read is
named and counted, and the rest goes on; the exit status is then 1.
"""

import argparse
from collections.abc import Generator, Iterator
import contextlib
import csv
import dataclasses
import json
import os
from typing import Any, IO

from etils import epath
import numpy as np

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax.commands import arguments
from vit_jax.inference import model as model_lib
from vit_jax.inference import predictions

MAX_ROWS = 50  # Of the table; a file holds them all.
_SHOWN = 3  # Classes of a row of the table.


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  arguments.add_pictures(parser)
  parser.add_argument(
      '--top-k', type=int, default=5, metavar='N',
      help='classes of each picture (default: %(default)s)')
  parser.add_argument(
      '--activation', choices=tuple(predictions.ACTIVATIONS),
      help='softmax: the classes share 100 %%; sigmoid: each has its own '
      'probability, of a model whose pictures have several (default: the loss '
      'that it was trained with, softmax where the weights do not say)')
  parser.add_argument(
      '--labels', default='', metavar='FILE',
      help='names of the classes, a line each, where the weights have none')
  parser.add_argument(
      '--output', default='', metavar='FILE',
      help='also write all predictions: .csv or .jsonl, which must not exist')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  arguments.check_suffix(args.output, ('.csv', '.jsonl'))
  errors: dict[str, str] = {}
  found = arguments.find(args.paths, errors)
  model = arguments.load(args)
  if args.labels:
    model = _with(model, labels=_names(model, args.labels))
  if args.activation:
    model = _with(model, activation=args.activation)
  # What cannot be answered is said before all pictures are read.
  if model.predicts_numbers:
    return _estimate(args, model, found, errors)
  model.likeliest(np.zeros((0, model.config.num_classes)), top_k=args.top_k)
  rows: dict[str, predictions.Prediction] = {}
  with arguments.Reading(len(found), errors) as reading:
    for paths, outputs in model.outputs(
        found, batch_size=args.batch_size, failed=reading.failed):
      rows |= zip(map(str, paths), model.likeliest(
          outputs['logits'], top_k=args.top_k))
      reading.advance(len(paths))
  if args.output:
    with _opened(args.output) as file:
      write = _write_csv if args.output.endswith('.csv') else _write_jsonl
      write(file, rows, reading.errors)
    print(f'wrote {args.output}: '
          + arguments.counted(len(rows), 'prediction'))
  if args.json:
    atomic_files.write_json(args.json, list(_records(rows, reading.errors)))
  if rows:
    _show(rows, model.preprocess.activation, args.output or '--output')
  return reading.report()


def _estimate(
    args: argparse.Namespace, model: model_lib.Model, found: list[str],
    errors: dict[str, str],
) -> int:
  """Predicts numbers, a column for each."""
  rows: dict[str, tuple[float, ...]] = {}
  with arguments.Reading(len(found), errors) as reading:
    for paths, outputs in model.outputs(
        found, batch_size=args.batch_size, failed=reading.failed):
      rows |= zip(map(str, paths), (
          estimate.values for estimate in model.estimates(outputs['logits'])))
      reading.advance(len(paths))
  names = model.estimates(np.zeros((1, model.config.num_classes)))[0].names
  records = [{'path': path, 'values': dict(zip(names, values))}
             for path, values in rows.items()]
  records += [{'path': path, 'error': error}
              for path, error in reading.errors.items()]
  if args.output:
    with _opened(args.output) as file:
      if args.output.endswith('.csv'):
        lines = csv.writer(file)
        lines.writerow(['path', *names, 'error'])
        lines.writerows([name, *values, ''] for name, values in rows.items())
        lines.writerows([name, *[''] * len(names), error]
                        for name, error in reading.errors.items())
      else:
        file.writelines(json.dumps(record) + '\n' for record in records)
    print(f'wrote {args.output}: '
          + arguments.counted(len(rows), 'prediction'))
  if args.json:
    atomic_files.write_json(args.json, records)
  if rows:
    console_lib.table(
        arguments.counted(len(rows), 'picture'), ['picture', *names],
        [[arguments.printable(path), *map(console_lib.format_number, values)]
         for path, values in list(rows.items())[:MAX_ROWS]])
  return reading.report()


def _with(model: model_lib.Model, **said: Any) -> model_lib.Model:
  """Returns the model with other words on what its answers mean."""
  return dataclasses.replace(
      model, preprocess=dataclasses.replace(model.preprocess, **said))


def _names(model: model_lib.Model, path: str) -> tuple[str, ...]:
  """Returns the names of the classes that a file holds.

  Raises:
    ValueError: if there are not as many as classes, or it is not UTF-8.
  """
  try:
    text = epath.Path(path).read_text(encoding='utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(
        f'{path} is not text in UTF-8: {error}. Save it as that.') from error
  names = tuple(text.strip().splitlines())
  if len(names) != model.config.num_classes:
    raise ValueError(
        f'{path} holds {arguments.counted(len(names), "name")} (one a '
        f'line), but the model has {model.config.num_classes:,} classes.')
  return names


@contextlib.contextmanager
def _opened(target: str) -> Generator[IO[str], None, None]:
  """Gives a file of text that appears whole.

  A file's name need not be UTF-8; its odd bytes are written as \\udcff.
  """
  with atomic_files.create(target) as path, open(
      path, 'w', newline='', encoding='utf-8',
      errors='backslashreplace') as file:
    yield file


def _show(
    rows: dict[str, predictions.Prediction], activation: str, whole: str,
) -> None:
  """Prints the likeliest classes; `whole` is where all of them are."""
  asked = min(len(p.names) for p in rows.values())
  shown = min(_SHOWN, asked)
  columns = ['picture']
  for i in range(shown):
    columns += [f'{i + 1}.', '']
  # What all paths begin with would fill the table.
  try:
    folder = os.path.commonpath(list(map(os.path.dirname, rows)) or [''])
  except ValueError:  # Of absolute paths and relative ones: nothing.
    folder = ''
  console_lib.table(
      arguments.counted(len(rows), 'picture')
      + f' in {arguments.printable(folder)}' * bool(folder)
      + ', each class by itself (sigmoid)' * (activation == 'sigmoid'), columns,
      [[arguments.printable(
          os.path.relpath(path, folder) if folder else path), *(
          cell for name, value in list(
              zip(prediction.names, prediction.probabilities))[:shown]
          for cell in (name, f'{100 * value:.1f} %'))]
       for path, prediction in list(rows.items())[:MAX_ROWS]])
  if len(rows) > MAX_ROWS:
    print(f'... and {len(rows) - MAX_ROWS:,} more: see {whole}')
  if asked > shown:
    print(f'The {shown} likeliest classes of {asked}: for all see {whole}')


def _write_csv(
    file: Any, rows: dict[str, predictions.Prediction], errors: dict[str, str],
) -> None:
  """Writes a line for each picture; those that could not be read say why."""
  count = max((len(p.names) for p in rows.values()), default=0)
  lines = csv.writer(file)
  lines.writerow(['path', *(f'{what}_{i + 1}' for i in range(count) for what
                             in ('name', 'probability', 'class')), 'error'])
  for path, p in rows.items():
    cells = [cell for row in zip(p.names, p.probabilities, p.classes)
             for cell in row]
    lines.writerow([path, *cells, ''])
  for path, error in errors.items():
    lines.writerow([path, *[''] * (3 * count), error])


def _write_jsonl(
    file: Any, rows: dict[str, predictions.Prediction], errors: dict[str, str],
) -> None:
  for record in _records(rows, errors):
    file.write(json.dumps(record) + '\n')


def _records(
    rows: dict[str, predictions.Prediction], errors: dict[str, str],
) -> Iterator[dict[str, Any]]:
  for path, p in rows.items():
    yield {'path': path, 'predictions': [
        {'name': name, 'probability': value, 'class': index}
        for name, value, index in zip(p.names, p.probabilities, p.classes)]}
  for path, error in errors.items():
    yield {'path': path, 'error': error}
