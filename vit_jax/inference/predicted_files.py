"""Predictions and features of image files, in memory and in new files."""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
import csv
import os
from typing import Any, NamedTuple

import numpy as np

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import escape
from vit_jax import registry
from vit_jax.inference import image_files
from vit_jax.inference import model as model_lib
from vit_jax.inference import predictions

_SEPARATOR = '|'  # Of several predicted classes, as in tables of labels.
_MAX_ROWS, _MAX_CLASSES = 50, 2  # Of a table; a file has all.
_MAX_LETTERS = 30  # Of a name, so that rows fit 80 columns.

# JSON values of an image and of a row of a table: `path`, `label`, `correct`
# and `values` or `decision` and `predictions`, or `error`.
Record = Mapping[str, Any]


def predict(
    model: model_lib.Model, found: Mapping[str, Sequence[image_files.Labels]],
    errors: dict[str, str], *, batch_size: int, top_k: int, flip: bool = False,
    output: str = '', masks: str = '', overwrite: bool = False,
    correct: Callable[[image_files.Labels, Any], bool | None] | None = None,
) -> tuple[list[Record], image_files.ReadProgress]:
  """Returns predictions for image files, and the images without a result.

  Args:
    model: the model.
    found: labels of each image by its path; see `image_files.find`.
    errors: errors by path of images that were not found.
    batch_size: images per batch.
    top_k: classes of a record; a .csv file has all.
    flip: averages the outputs for each image and its mirror image.
    output: new .csv or .jsonl file for all predictions.
    masks: new folder for the masks of a segmentation model.
    overwrite: whether `output` may exist, and is replaced.
    correct: says whether the labels of an image agree with its prediction.

  Raises:
    UserError: if the model has no head, or no image has a result.
  """
  model.check_head()  # Before any image is read.
  columns = label_columns(found)
  records: list[Record] = []
  progress = image_files.ReadProgress(len(found), errors)
  write_masks = (
      registry.load(registry.SEGMENTATION).mask_writer(masks, model, found)
      if masks else contextlib.nullcontext(lambda *_: None))
  with progress, write_masks as write_mask, _writer(
      output, columns, overwrite=overwrite) as write:
    for paths, outputs in model.outputs(
        found, batch_size=batch_size, flip=flip, on_error=progress.add_error):
      logits = outputs['logits']
      results: Sequence[predictions.Result] = model.decode(
          logits, top_k=model.config.num_classes)
      for path, row, result in zip(map(str, paths), logits, results):
        write_mask(path, row)
        for labels in found[path]:
          records.append(_record(path, labels, columns, {
              **({'correct': correct(labels, result)} if correct else {}),
              **_plain(result, top_k)}))
          write(records[-1], labels, result)
      progress.advance(len(paths))
    if not records:
      raise progress.none_readable()
    for path, error in progress.errors.items():
      for labels in found.get(path, [{}]):
        records.append(_record(path, labels, columns, {'error': error}))
        write(records[-1], labels, None)
  return records, progress


def write_features(
    model: model_lib.Model, found: Mapping[str, Any], errors: dict[str, str], *,
    layer: str, batch_size: int, output: str, overwrite: bool = False,
) -> tuple[list[int], image_files.ReadProgress]:
  """Writes a feature layer of image files, and their paths.

  Arguments are those of `predict`, except for `layer`, see `Model.features`,
  and `output`, which is a new .npz file.

  Returns:
    The shape of the features, one row per image, and the images without any.

  Raises:
    UserError: if the model has no such layer, or no image has a result.
  """
  name, done, rows = model.layer_output(layer), list[str](), []
  with image_files.ReadProgress(len(found), errors) as progress:
    for paths, outputs in model.outputs(
        found, batch_size=batch_size, names=(name,),
        on_error=progress.add_error):
      done += map(str, paths)
      rows.append(model.extract_layer(outputs, layer))
      progress.advance(len(paths))
    if not done:
      raise progress.none_readable()
  features = np.concatenate(rows)
  with atomic_files.create(
      output, overwrite=overwrite) as path, path.open('wb') as file:
    np.savez(file, features=features, path=np.array(done))
  return list(features.shape), progress


def label_columns(
    found: Mapping[str, Sequence[image_files.Labels]]) -> list[str]:
  """Returns the label columns of the tables of images."""
  return list(dict.fromkeys(
      name for rows in found.values() for labels in rows for name in labels))


class Table(NamedTuple):
  """A table of predictions for the terminal.

  Attributes:
    images: number of images, as text.
    limits: what is shown if not all is: '50 images and 2 classes'; else ''.
  """
  images: str
  title: str
  headings: list[str]
  rows: list[list[Any]]
  limits: str


def table(
    model: model_lib.Model, records: Sequence[Record],
    found: Mapping[str, Sequence[image_files.Labels]]) -> Table:
  """Returns all classes of one image, or the first ones of several.

  Args:
    model: the model that made the predictions.
    records: predictions, without errors.
    found: labels of each image by its path.
  """
  columns, folder, classes = label_columns(found), '', None
  with contextlib.suppress(ValueError):  # Absolute and relative paths.
    folder = os.path.commonpath(
        [os.path.dirname(record['path']) for record in records])
  images = console.format_count(
      len({record['path'] for record in records}), 'image')
  title = images + f' in {escape.line(folder)}' * bool(folder)
  if model.preprocess.activation == 'sigmoid':
    title += ', independent class probabilities (sigmoid)'
  limits = [f'{_MAX_ROWS} images'] * (len(records) > _MAX_ROWS)
  if len(records) > 1:
    classes = _MAX_CLASSES
    limits += [f'{classes} classes'] * (
        len(records[0].get('predictions', ())) > classes)
  # Without thresholds, the first class is the decision.
  decides = bool(model.thresholds)
  headings = ['image', *_titles(columns), *['decision'] * decides, *(
      records[0].get('values') or (
          'class', 'share of pixels' if model.has_decoder else 'probability',
          *['threshold'] * decides))]
  rows: list[list[Any]] = []
  for record in records[:_MAX_ROWS]:
    path, label = record['path'], record.get('label', {})
    start = [os.path.relpath(path, folder) if folder else path, *(
        label.get(name, '') if isinstance(label, Mapping) else label
        for name in columns)]
    if decides:
      start.append(_SEPARATOR.join(record['decision']))
    start = [_shorten(str(text)) for text in start]
    if 'values' in record:
      rows.append([*start, *record['values'].values()])
    rows += [[*start, _shorten(p['name']), *(
        console.format_percent(value, digits=1) for value in (
            p['probability'], *model.thresholds[p['index']:p['index'] + 1]))]
             for p in record.get('predictions', ())[:classes]]
  return Table(images, title, headings, rows, ' and '.join(limits))


def _titles(columns: Sequence[str]) -> list[str]:
  """Returns the titles of label columns."""
  return ['label'] if len(columns) == 1 else [f'label {n}' for n in columns]


def _record(
    path: str, labels: image_files.Labels, columns: Sequence[str],
    result: Mapping[str, Any]) -> Record:
  """Returns a record: its label is that of the only column, or all of them."""
  label = labels if len(columns) > 1 else next(iter(labels.values()), None)
  return {'path': path, **({'label': label} if labels else {}), **result}


def _plain(result: predictions.Result, top_k: int) -> dict[str, Any]:
  """Returns JSON values with the `values` or `predictions` of an image."""
  if isinstance(result, predictions.Estimate):
    return {'values': dict(zip(result.names, result.values))}
  return {'decision': list(result.decision), 'predictions': [
      {'name': name, 'probability': value, 'index': index} for name, value,
      index in zip(result.names[:top_k], result.probabilities, result.classes)]}


@contextlib.contextmanager
def _writer(
    target: str, columns: Sequence[str], *, overwrite: bool,
) -> Generator[Callable[..., object], None, None]:
  """Yields a function that writes a record; an error leaves no file.

  Args:
    target: a .csv file, with one column per class or target; or .jsonl. Bytes
      that are not UTF-8 are escaped as \\udcff. In .csv, text that a
      spreadsheet would calculate gets an apostrophe.
    columns: label columns of the tables of images.
    overwrite: whether the file may exist, and is replaced.
  """
  if not target:
    yield lambda record, labels, result: None
    return
  with atomic_files.create(target, overwrite=overwrite) as path, open(
      path, 'w', newline='', encoding='utf-8',
      errors='backslashreplace') as file:
    if target.endswith('.jsonl'):
      yield lambda record, labels, result: file.write(
          atomic_files.json_line(record))
      return
    rows, names = csv.writer(file), list[str]()

    def put(path: str, labels: list, values: list, error: str) -> None:
      rows.writerow(map(escape.csv_cell, [path, *labels, *values, error]))

    def write(
        record: Record, labels: image_files.Labels,
        result: predictions.Result | None) -> None:
      cells = [(name, '') for name in names] if not result else [
          *((name, record[name]) for name in ('correct',) if name in record),
          *_cells(result)]
      if not names:
        names.extend(name for name, _ in cells)
        put('path', _titles(columns), names, 'error')
      put(record['path'], [labels.get(name, '') for name in columns],
          [value for _, value in cells], record.get('error', ''))

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
