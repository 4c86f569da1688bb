"""Classifies images with any model that `vit_jax.load` accepts.

    python main.py predict --model=runs/quickstart/finetune my_images/ cat.jpg
    python main.py predict --model=runs/mine test.csv --output=predictions.csv
    python main.py predict --model=runs/segmentation street/ --masks=predicted

Unreadable files, and images whose outputs are not finite, are reported and
skipped; the exit status is then 1.
"""

from __future__ import annotations

import argparse
from collections.abc import (
  Callable,
  Generator,
  Iterable,
  Mapping,
  Sequence,
)
import contextlib
import csv
import functools
import os
from typing import Any

from etils import epy

from vit_jax import fields
from vit_jax.commands import arguments

with epy.lazy_imports():
  import numpy as np

  from vit_jax import atomic_files
  from vit_jax import console as console_lib
  from vit_jax import escape
  from vit_jax import pixel_classes
  from vit_jax.inference import image_files
  from vit_jax.inference import images as images_lib
  from vit_jax.inference import model as model_lib
  from vit_jax.inference import predictions

SEPARATOR = '|'  # Of several predicted classes, as in tables of labels.
# Images and classes of each in the table; a file has all of them.
_MAX_ROWS, _MAX_CLASSES = 50, 2
_MAX_LETTERS = 30  # Of a name, so that rows fit 80 columns.


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


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  arguments.check_output(args.output, ('.csv', '.jsonl'))
  fields.check_range(args, 'top_k', low=1)
  found, errors = arguments.find_images(args)
  model = arguments.load_model(args)
  if args.masks:
    model.check_segments()
  count = model.config.num_classes
  decode = functools.partial(model.decode, top_k=count)
  # Raises for a model without a head before any image is read.
  example = decode(np.zeros(
      (1, 1, 1, count) if model.has_decoder else (1, count)))[0]
  columns = list(dict.fromkeys(
      name for rows in found.values() for labels in rows for name in labels))
  records: list[dict[str, Any]] = []
  known: list[image_files.Labels] = []  # Of each record.
  with image_files.ReadProgress(len(found), errors) as progress, _output(
      args.output, columns, example) as write, _mask_writer(
          args.masks, model, found) as write_mask:
    for paths, outputs in model.outputs(
        found, batch_size=args.batch_size, flip=args.flip,
        on_error=progress.add_error):
      results: Sequence[predictions.Result] = decode(outputs['logits'])
      for path, result, logits in zip(
          map(str, paths), results, outputs['logits']):
        write_mask(path, logits)
        for labels in found[path]:
          known.append(labels)
          records.append({'path': path, **_label(labels),
                          **_result(result, args.top_k)})
          write(records[-1], labels, result)
      progress.advance(len(paths))
    if not records:
      raise progress.none_readable()
    failed = [{'path': path, 'error': error}
              for path, error in progress.errors.items()]
    for record in failed:
      for labels in found.get(record['path'], [{}]):
        write(record, labels, None)
  if args.output:
    print(f'wrote {args.output}: '
          + console_lib.format_count(len(records), 'prediction'))
  if args.masks:
    print(f'wrote {args.masks}: masks/ and overlays/ of '
          + console_lib.format_count(
              len({record['path'] for record in records}), 'image'))
  _print(model, records, known, columns, args.output or '--output=FILE.csv')
  return progress.report(), records + failed


def _label(labels: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the label of a record: the only one, or all by column."""
  if len(labels) == 1:
    return {'label': next(iter(labels.values()))}
  return {'label': labels} if labels else {}


def _result(result: predictions.Result, top_k: int) -> dict[str, Any]:
  """Returns JSON values with the `values` or `predictions` of an image."""
  if isinstance(result, predictions.Estimate):
    return {'values': dict(zip(result.names, result.values))}
  return {'decision': list(result.decision), 'predictions': [
      {'name': name, 'probability': value, 'index': index} for name, value,
      index in zip(result.names[:top_k], result.probabilities, result.classes)]}


def _print(
    model: model_lib.Model, records: Sequence[Mapping[str, Any]],
    known: Sequence[image_files.Labels], names: Sequence[str], output: str,
) -> None:
  """Prints all classes of one image, or the first ones of several.

  Args:
    model: the model.
    records: its predictions.
    known: labels of each.
    names: label columns of the tables of images.
    output: file with all predictions.
  """
  count = None if len(records) == 1 else _MAX_CLASSES
  folder, paths = '', {record['path'] for record in records}
  with contextlib.suppress(ValueError):  # Absolute and relative paths.
    folder = os.path.commonpath([*map(os.path.dirname, paths)])
  first = ['image', *_titles(names)]
  if model.thresholds:  # Otherwise, the first class is the decision.
    first.append('decision')
  columns, rows = [*first, 'class', 'share of pixels' if model.has_decoder else
                   'probability', *['threshold'] * bool(model.thresholds)], []
  for record, labels in zip(records[:_MAX_ROWS], known):
    path = record['path']
    start = [_shorten(os.path.relpath(path, folder) if folder else path), *(
        _shorten(str(labels.get(name, ''))) for name in names)]
    if model.thresholds:
      start.append(_shorten(SEPARATOR.join(record['decision'])))
    if 'values' in record:
      columns = [*first, *record['values']]
      rows.append([*start, *record['values'].values()])
    rows += [[*start, _shorten(p['name']),
              console_lib.format_percent(p['probability'], digits=1), *(
                  console_lib.format_percent(value, digits=1) for value in
                  model.thresholds[p['index']:p['index'] + 1])]
             for p in record.get('predictions', ())[:count]]
  console_lib.table(
      console_lib.format_count(len(paths), 'image')
      + f' in {escape.line(folder)}' * bool(folder)
      + ', independent class probabilities (sigmoid)' * (
          model.preprocess.activation == 'sigmoid'), columns, rows)
  limits = [f'{_MAX_ROWS} images'] * (len(records) > _MAX_ROWS)
  if count and 'class' in columns and model.config.num_classes > count:
    limits.append(f'{count} classes')
  if limits:
    print(f'At most {" and ".join(limits)} are shown; {output} has all.')


def _titles(columns: Sequence[str]) -> list[str]:
  """Returns the titles of label columns."""
  return ['label'] if len(columns) == 1 else [f'label {n}' for n in columns]


def _shorten(text: str) -> str:
  return console_lib.shorten(escape.line(text), _MAX_LETTERS)


@contextlib.contextmanager
def _mask_writer(
    target: str, model: model_lib.Model, paths: Iterable[str],
) -> Generator[Callable[[str, Any], None], None, None]:
  """Yields a function that writes the mask and overlay of an image's logits.

  Files are at the paths of the images relative to their common folder. An error
  leaves no files; without a `target`, nothing is written.
  """
  if not target:
    yield lambda path, logits: None
    return
  root = os.path.commonpath(
      [os.path.dirname(os.path.abspath(path)) for path in paths])
  count = model.config.num_classes
  with atomic_files.create(target) as folder:
    def write(path: str, logits: Any) -> None:
      classes = model.pixel_classes(path, logits)
      pictures = {'masks': pixel_classes.mask_image(classes, count)}
      if images_lib.is_viewable(model.preprocess):
        pictures['overlays'] = pixel_classes.overlay(
            images_lib.open_image(path, model.preprocess), classes, count)
      name = os.path.relpath(os.path.abspath(path), root)
      for kind, picture in pictures.items():
        file = folder / kind / f'{os.path.splitext(name)[0]}.png'
        if file.exists():  # Of an image with another suffix.
          file = folder / kind / f'{name}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        picture.save(file)

    yield write


@contextlib.contextmanager
def _output(
    target: str, columns: Sequence[str], example: predictions.Result,
) -> Generator[Callable[..., object], None, None]:
  """Yields a function that writes a record; an error leaves no file.

  Args:
    target: a .csv file, with one column per class or target; or .jsonl. Bytes
      that are not UTF-8 are escaped as \\udcff. In .csv, text that a
      spreadsheet would calculate gets an apostrophe.
    columns: label columns of the tables of images.
    example: result of any image.
  """
  with contextlib.ExitStack() as stack:
    if not target:
      yield lambda record, labels, result: None
      return
    path = stack.enter_context(atomic_files.create(target))
    file = stack.enter_context(open(
        path, 'w', newline='', encoding='utf-8', errors='backslashreplace'))
    if target.endswith('.jsonl'):
      yield lambda record, labels, result: file.write(
          atomic_files.json_line(record))
      return
    rows = csv.writer(file)

    def write(
        record: Mapping[str, Any], labels: Mapping[str, Any],
        result: predictions.Result | None,
    ) -> None:
      rows.writerow(map(escape.csv_cell, [
          record['path'], *(labels.get(name, '') for name in columns),
          *(value if result else '' for _, value in _cells(result or example)),
          record.get('error', '')]))

    rows.writerow(map(escape.csv_cell, [
        'path', *_titles(columns), *(name for name, _ in _cells(example)),
        'error']))
    yield write


def _cells(result: predictions.Result) -> list[tuple[str, Any]]:
  """Returns the columns of a prediction and all classes, or all targets."""
  if isinstance(result, predictions.Estimate):
    return list(zip(result.names, result.values))
  by_class = sorted(zip(result.classes, result.names, result.probabilities))
  return [('decision', SEPARATOR.join(result.decision)),
          *((name, value) for _, name, value in by_class)]
