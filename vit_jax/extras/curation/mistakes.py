"""Compares predictions with the labels of their images, and lists mistakes.

    python main.py predict --model=runs/mine my_images/ --mistakes=mistakes.csv

Labels come from the rows of a table or from class folders: an image below a
given folder has the label of the first folder on its way whose name is a class
of the model.
"""

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
import csv
import dataclasses
import os
from typing import Any

from etils import epath

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import escape
from vit_jax.commands import arguments
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.exceptions import UserError
from vit_jax.inference import image_files
from vit_jax.inference import model as model_lib
from vit_jax.inference import predicted_files
from vit_jax.inference import predictions

Found = Mapping[str, Sequence[image_files.Labels]]

_SEPARATOR = '|'  # Of several labels, as in tables.


def _section(model: model_lib.Model) -> Mapping[str, Any]:
  """Returns the section `data` of the run that trained a model, if any."""
  return model.run.get('data', {})


def _separator(model: model_lib.Model) -> str:
  return _section(model).get('table', {}).get('separator') or _SEPARATOR


def check_output(args: argparse.Namespace) -> None:
  """Raises if the file --mistakes cannot be written, or is that of --output."""
  arguments.check_output(args.mistakes, ('.csv',), overwrite=args.overwrite)
  if args.mistakes and atomic_files.absolute(args.mistakes) == (
      atomic_files.absolute(args.output)):
    raise UserError(
        f'--output and --mistakes are the same file, {args.mistakes}. Choose '
        'another one for the mistakes.')


def with_folders(
    found: Found, paths: Sequence[str], model: model_lib.Model) -> Found:
  """Returns images with the label of their class folder, where they have one.

  Rows of one image are joined if those of the training were.

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
      label = next((part for part in map(columns_lib.clean, folders)
                    if part in names), None)
      if (image.startswith(prefix) and label is not None
          and not any(rows)):
        result[image] = [{'label': label}]
  if _section(model).get('target') == 'multi':
    result = {image: rows if len(rows) < 2 else [_join(rows, _separator(model))]
              for image, rows in result.items()}
  return result


def _join(
    rows: Sequence[image_files.Labels], separator: str) -> image_files.Labels:
  """Returns one row with the labels of all rows of an image."""
  return {column: separator.join(dict.fromkeys(
      str(cell) for row in rows for cell in _split(row[column], separator)))
          for column in rows[0]}


def _split(value: Any, separator: str) -> list[Any]:
  """Returns the labels in a cell without spaces; empty ones are left out."""
  if not isinstance(value, (list, tuple)):
    value = value.split(separator) if isinstance(value, str) else [value]
  return [cell for cell in map(columns_lib.clean, value) if cell is not None]


def _name(cell: Any, names: Collection[str]) -> str:
  """Returns the class of a cell; numbers are names as in training."""
  number = columns_lib.to_integer(cell)
  return str(cell if str(cell) in names or number is None else number)


@dataclasses.dataclass(frozen=True, eq=False)
class Judge:
  """Says whether predictions are right.

  Attributes:
    classes_of: returns the classes in labels; None without labels, or with one
      that is no class of the model.
    several: whether an image may have several labels. All must be predicted and
      no other; in a table of a run with `data.target=multi`, no label is a
      label then.
    confidences: of the mistakes so far, in their order: the probability of the
      decision. With several labels, only those count that are wrong: the
      highest probability of one that is predicted, or of the absence of one
      that is not.
  """
  classes_of: Callable[[image_files.Labels], set[str] | None]
  several: bool
  confidences: list[float] = dataclasses.field(default_factory=list)

  def __call__(
      self, labels: image_files.Labels, result: predictions.Prediction,
  ) -> bool | None:
    classes = self.classes_of(labels)
    if classes is None:
      return None
    decision = {*result.decision}
    wrong = classes ^ decision
    if wrong:
      compared = wrong if self.several else decision
      self.confidences.append(max(
          value if name in decision else 1 - value
          for name, value in zip(result.names, result.probabilities)
          if name in compared))
    return not wrong

  def report(
      self, records: Sequence[predicted_files.Record], target: str, *,
      overwrite: bool = False,
  ) -> None:
    """Prints the accuracy, and writes the list of mistakes.

    Args:
      records: all records that were judged, in their order.
      target: new .csv file; '' writes none.
      overwrite: whether the file may exist, and is replaced.
    """
    known = [record for record in records if record['correct'] is not None]
    wrong = sorted(zip(
        self.confidences, (one for one in known if not one['correct']),
        strict=True), key=lambda one: -one[0])
    rest = len(records) - len(known)
    if known:
      title, what = (('all labels right in', 'image') if self.several else
                     ('accuracy', 'label'))
      others = {text for record in records if record['correct'] is None
                and (label := record.get('label')) is not None
                and (text := _text(label).strip())}
      console.print_lines(
          f'{title} '
          + console.format_percent(1 - len(wrong) / len(known), digits=2)
          + f' of {console.format_count(len(known), what)}'
          + f'; {rest:,} without a label that is a class of the model'
          * bool(rest) + f': {files.shorten(sorted(others), 8)}' * bool(others))
    else:
      print('no accuracy: no label is a class of the model')
    if not target:
      return
    with atomic_files.create(target, overwrite=overwrite) as path, open(
        path, 'w', newline='', encoding='utf-8',
        errors='backslashreplace') as file:
      rows = csv.writer(file)
      rows.writerow(('path', 'label', 'decision', 'confidence'))
      for confidence, record in wrong:
        rows.writerow(map(escape.csv_cell, (
            record['path'], _text(record['label']), _text(record['decision']),
            confidence)))
    print(f'wrote {target}: {console.format_count(len(wrong), "mistake")}')


def judge(
    found: Found, model: model_lib.Model, *, required: bool,
) -> Judge | None:
  """Returns what judges predictions of a model; None without labels.

  Args:
    found: labels of images.
    model: the model.
    required: whether images without labels are an error.
  """
  names = {*model.preprocess.labels}
  joined = _section(model).get('target') == 'multi'
  several = joined or model.preprocess.activation == 'sigmoid'

  def classes_of(labels: image_files.Labels) -> set[str] | None:
    if by_column:
      known = labels and all(
          columns_lib.to_flag(labels[name]) is not None for name in names)
      return _flagged(labels, names) if known else None
    value = columns_lib.clean(next(iter(labels.values()), None))
    if value is None and not (joined and labels):
      return None
    is_one = isinstance(value, str) and (not several or value in names)
    cells = [value] if is_one else _split(value, _separator(model))
    given = {_name(cell, names) for cell in cells}
    return given if given <= names else None

  comparable = not (model.has_decoder or model.preprocess.activation == 'none')
  columns = predicted_files.label_columns(found)
  by_column = several and len(columns) > 1  # Of 0 and 1, one for each class.
  if comparable and names and (
      {*columns} == names if by_column else len(columns) == 1):
    return Judge(classes_of, several)
  if required and not (comparable and names):
    raise UserError(
        '--mistakes needs a model of classes with names, but this one has '
        f'{model.head_size}. Name classes with --labels; numbers and masks '
        'are compared by `evaluate`.')
  if required:
    raise UserError(
        '--mistakes needs the labels of the images, which have '
        f'{console.format_count(len(columns), "column")} of labels. Give a '
        'folder whose subfolders are named as classes, or a table with a '
        'column of labels (--config.data.table.label=COLUMN). For several '
        'labels, it may have one column of 0 and 1 for each class.')
  return None


def _flagged(labels: Mapping[str, Any], names: Collection[str]) -> set[str]:
  """Returns the classes whose column of 0 and 1 has a 1."""
  return {name for name in names if columns_lib.to_flag(labels[name])}


def _text(value: Any) -> str:
  if isinstance(value, Mapping):
    value = sorted(_flagged(value, value))
  return _SEPARATOR.join(map(str, value)) if isinstance(
      value, (list, tuple)) else str(value)
