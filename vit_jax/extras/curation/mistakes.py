"""Compares predictions with the labels of their images, and lists mistakes.

    python main.py predict --model=runs/mine my_images/ --mistakes=mistakes.csv

Labels come from the rows of a table or from class folders: an image below a
given folder has the label of the first folder on its way whose name is a class
of the model.
"""

from collections.abc import Callable, Mapping, Sequence
import csv
import os
from typing import Any

from etils import epath

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import escape
from vit_jax.exceptions import UserError
from vit_jax.inference import image_files
from vit_jax.inference import model as model_lib
from vit_jax.inference import predicted_files
from vit_jax.inference import predictions

Found = Mapping[str, Sequence[image_files.Labels]]
Judge = Callable[[image_files.Labels, predictions.Prediction], bool | None]

_SEPARATOR = '|'  # Of several labels, as in tables.


def with_folders(
    found: Found, paths: Sequence[str], model: model_lib.Model) -> Found:
  """Returns images with the label of their class folder, where they have one.

  Args:
    found: labels of images; those that have some keep them.
    paths: what the images were found in.
    model: the model; its classes are the names of class folders.
  """
  names, result = {*model.preprocess.labels}, dict(found)
  for root in (os.fspath(epath.Path(path).expanduser()) for path in paths):
    for image, rows in found.items():
      prefix = '' if root == '.' else os.path.join(root, '')
      folders = os.path.dirname(image.removeprefix(prefix)).split(os.sep)
      label = next((part for part in folders if part in names), None)
      if (image.startswith(prefix) and label is not None
          and not any(rows)):
        result[image] = [{'label': label}]
  return result


def judge(
    found: Found, model: model_lib.Model, *, required: bool,
) -> Judge | None:
  """Returns a function that says whether a prediction is right.

  The function returns None for an image without a label, or with one that is no
  class of the model.

  Args:
    found: labels of images.
    model: the model.
    required: whether images without labels are an error; otherwise the result
      is then None.
  """
  names = {*model.preprocess.labels}
  several = model.preprocess.activation == 'sigmoid'

  def is_right(
      labels: image_files.Labels, result: predictions.Prediction,
  ) -> bool | None:
    value = next(iter(labels.values()), None)
    if value is None:
      return None
    cells = value if isinstance(value, (list, tuple)) else (
        str(value).split(_SEPARATOR) if several and value not in names
        else [value])
    given = {*map(str, cells)}
    return given == {*result.decision} if given <= names else None

  comparable = not (model.has_decoder or model.preprocess.activation == 'none')
  columns = predicted_files.label_columns(found)
  if comparable and names and len(columns) == 1:
    return is_right
  if required:
    raise UserError(
        '--mistakes needs a model of classes with names, and images with one '
        f'label each, but the model has {model.head_size} and the images have '
        f'{console.format_count(len(columns), "column")} of labels. Give a '
        'folder whose subfolders are named as classes, or a table with a '
        'column of labels (--config.data.table.label=COLUMN).')
  return None


def report(
    records: Sequence[predicted_files.Record], target: str, *,
    overwrite: bool = False,
) -> None:
  """Prints the accuracy, and writes the list of mistakes.

  Args:
    records: records with `correct`, without errors.
    target: new .csv file; '' writes none.
    overwrite: whether the file may exist, and is replaced.
  """
  known = [record for record in records if record['correct'] is not None]
  wrong = sorted((record for record in known if not record['correct']),
                 key=lambda record: -_confidence(record))
  rest = len(records) - len(known)
  if known:
    print('accuracy '
          + console.format_percent(1 - len(wrong) / len(known), digits=2)
          + f' of {console.format_count(len(known), "label")}'
          + f'; {rest:,} are missing or no class of the model' * bool(rest))
  else:
    print('no accuracy: no label is a class of the model')
  if not target:
    return
  with atomic_files.create(target, overwrite=overwrite) as path, open(
      path, 'w', newline='', encoding='utf-8',
      errors='backslashreplace') as file:
    rows = csv.writer(file)
    rows.writerow(('path', 'label', 'decision', 'confidence'))
    for record in wrong:
      rows.writerow(map(escape.csv_cell, (
          record['path'], _text(record['label']), _text(record['decision']),
          _confidence(record))))
  print(f'wrote {target}: {console.format_count(len(wrong), "mistake")}')


def _confidence(record: predicted_files.Record) -> float:
  """Returns the probability of the most probable class."""
  return record['predictions'][0]['probability']


def _text(value: Any) -> str:
  return _SEPARATOR.join(map(str, value)) if isinstance(
      value, (list, tuple)) else str(value)
