"""Predictions for image files, in memory and in new files."""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
import csv
import dataclasses
import functools
import os
from typing import Any

import numpy as np

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import escape
from vit_jax import registry
from vit_jax.inference import image_files
from vit_jax.inference import model as model_lib
from vit_jax.inference import predictions

_SEPARATOR = '|'  # Of several predicted classes, as in tables of labels.
_MAX_LETTERS = 30  # Of a name, so that rows fit 80 columns.


@dataclasses.dataclass(frozen=True)
class Predicted:
  """Predictions for image files, one for each row of a table.

  Attributes:
    columns: label columns of the tables of images.
    progress: reports the images without a result.
    records: JSON values with the `path`, `label` and `values` or `predictions`
      of each.
    labels: the labels of each by column.
    failed: `path` and `error` of each image without a result.
  """
  columns: list[str]
  progress: image_files.ReadProgress
  records: list[dict[str, Any]] = dataclasses.field(default_factory=list)
  labels: list[image_files.Labels] = dataclasses.field(default_factory=list)
  failed: list[dict[str, Any]] = dataclasses.field(default_factory=list)

  def table(
      self, model: model_lib.Model, folder: str, *, rows: int,
      classes: int | None,
  ) -> tuple[list[str], list[list[Any]]]:
    """Returns the headings and rows of a table of predictions.

    Args:
      model: the model that made them.
      folder: common folder of the images.
      rows: largest number of predictions.
      classes: largest number of classes of each; None for all.
    """
    columns = ['image', *_titles(self.columns)]
    if model.thresholds:  # Otherwise, the first class is the decision.
      columns.append('decision')
    if 'values' in self.records[0]:
      columns += self.records[0]['values']
    else:
      columns += [
          'class', 'share of pixels' if model.has_decoder else 'probability',
          *['threshold'] * bool(model.thresholds)]
    found: list[list[Any]] = []
    for record, labels in zip(self.records[:rows], self.labels):
      path = record['path']
      start = [_shorten(os.path.relpath(path, folder) if folder else path), *(
          _shorten(str(labels.get(name, ''))) for name in self.columns)]
      if model.thresholds:
        start.append(_shorten(_SEPARATOR.join(record['decision'])))
      if 'values' in record:
        found.append([*start, *record['values'].values()])
      found += [[*start, _shorten(p['name']), *(
          console.format_percent(value, digits=1) for value in (
              p['probability'],
              *model.thresholds[p['index']:p['index'] + 1]))]
                for p in record.get('predictions', ())[:classes]]
    return columns, found


def predict(
    model: model_lib.Model, found: Mapping[str, Sequence[image_files.Labels]],
    errors: dict[str, str], *, batch_size: int, top_k: int, flip: bool = False,
    output: str = '', masks: str = '',
) -> Predicted:
  """Predicts the classes or targets of image files.

  Args:
    model: the model.
    found: labels of each image by its path; see `image_files.find`.
    errors: errors by path of images that were not found.
    batch_size: images per batch.
    top_k: classes of a record; a .csv file has all.
    flip: averages the outputs for each image and its mirror image.
    output: new .csv or .jsonl file for all predictions.
    masks: new folder for the masks of a segmentation model.

  Raises:
    ValueError: if the model has no head, or no image has a result.
  """
  count = model.config.num_classes
  decode = functools.partial(model.decode, top_k=count)
  # Raises for a model without a head before any image is read.
  example = decode(np.zeros(
      (1, 1, 1, count) if model.has_decoder else (1, count)))[0]
  progress = image_files.ReadProgress(len(found), errors)
  made = Predicted(list(dict.fromkeys(
      name for rows in found.values() for labels in rows for name in labels)),
                   progress)
  write_masks = (
      registry.load(registry.SEGMENTATION).mask_writer(masks, model, found)
      if masks else contextlib.nullcontext(lambda *_: None))
  with progress, write_masks as write_mask, _output(
      output, made.columns, example) as write:
    for paths, outputs in model.outputs(
        found, batch_size=batch_size, flip=flip, on_error=progress.add_error):
      results: Sequence[predictions.Result] = decode(outputs['logits'])
      for path, result, logits in zip(
          map(str, paths), results, outputs['logits']):
        write_mask(path, logits)
        for labels in found[path]:
          made.labels.append(labels)
          made.records.append({'path': path, **_label(labels),
                               **_result(result, top_k)})
          write(made.records[-1], labels, result)
      progress.advance(len(paths))
    if not made.records:
      raise progress.none_readable()
    made.failed.extend({'path': path, 'error': error}
                       for path, error in progress.errors.items())
    for record in made.failed:
      for labels in found.get(record['path'], [{}]):
        write(record, labels, None)
  return made


def _titles(columns: Sequence[str]) -> list[str]:
  """Returns the titles of label columns."""
  return ['label'] if len(columns) == 1 else [f'label {n}' for n in columns]


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
  return [('decision', _SEPARATOR.join(result.decision)),
          *((name, value) for _, name, value in by_class)]


def _shorten(text: str) -> str:
  return console.shorten(escape.line(text), _MAX_LETTERS)
