"""Tables of image files: a row per image, with its path and labels."""

from collections.abc import Mapping
import dataclasses
import functools
import os
from typing import Any

from etils import epath
from jaxtyping import Integer
import numpy as np
import pyarrow as pa

from vit_jax import atomic_files
from vit_jax import schema
from vit_jax import spelling
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import labels as labels_lib
from vit_jax.data.sources import protocol
from vit_jax.data.sources import suggest
from vit_jax.data.sources import table_files
from vit_jax.data.sources import table_source


def open_table(
    path: epath.Path, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  """Opens a table of image files.

  Raises:
    ValueError: if the table is malformed or contradicts itself, columns have
      other names than declared, or images are missing.
  """
  table, where = table_files.read(path), os.fspath(path)
  config = choose_columns(table, config, where=where)
  paths = locate(table, path, config)
  return open_images(
      paths, table, config, where=where, root=os.fspath(path.parent))


def choose_columns(
    table: pa.Table, config: columns_lib.LabelConfig, *, where: str,
    has_paths: bool = True, declared: str | None = None,
) -> columns_lib.LabelConfig:
  """Returns the config with the image, label and split column of a table.

  Args:
    table: the table.
    config: declared columns.
    where: names the table in errors.
    has_paths: whether a column has to hold the paths of image files.
    declared: label column that the file declares, if none is called `label`.

  Raises:
    protocol.NoLabels: if there is no label column, with flags to paste.
    ValueError: if another column is missing, likewise.
  """
  names, given = table.column_names, config.table
  for name in (given.path if has_paths else None, given.split, config.group,
               *given.labels):
    if name:
      schema.check_name(name, names, what=f'column of {where}')
  found = lambda *usual: next((name for name in usual if name in names), None)
  path = given.path or found(*columns_lib.PATHS)
  label = found(columns_lib.LABEL) or declared
  labels = given.labels or (label,) * bool(label)
  needs_labels = config.target != 'none'
  if has_paths and path is None:
    raise ValueError(suggest.columns(
        table, config, where=where, has_paths=True))
  if needs_labels and not labels:
    raise protocol.NoLabels(suggest.columns(
        table, config, where=where, has_paths=has_paths))
  if needs_labels and config.group in labels:
    raise ValueError(
        f'data.group is {config.group!r}, the label column of {where}, so that '
        'each class would be one group. Name another column.')
  return columns_lib.with_columns(
      config, path=path, label=labels if needs_labels else (),
      split=given.split or found(columns_lib.SPLIT))


def open_images(
    paths: pa.Array, table: pa.Table, config: columns_lib.LabelConfig, *,
    where: str, root: str, splits: columns_lib.Column | None = None,
) -> protocol.DatasetSplits:
  """Returns the dataset of image files with one table row each.

  Args:
    paths: path of each row's image, relative to `root` or absolute. Rows of
      one image must have equal labels or, in `multi`, are joined.
    table: the table.
    config: its columns.
    where: names the table in messages.
    root: keys are relative to it, so that moving it changes no key.
    splits: the split of each row, in place of a column.
  """
  if config.table.split:
    splits = table_source.parse_splits(
        table[config.table.split], config.table.split, where)
  names = (*config.table.labels, *filter(None, [config.group]))
  columns = {name: table[name] for name in names}
  unique, notes, first = paths.dictionary_encode(), [], None
  if len(unique.dictionary) < len(paths):
    of, first = _number_images(unique)
    is_joined = config.target == 'multi' and len(config.table.labels) == 1
    _check_repeated(paths, of, first, {
        **{name: column for name, column in columns.items()
           if not (is_joined and name in config.table.labels)},
        **({'split': splits} if splits is not None else {})}, where)
    columns = {name: labels_lib.join_rows(column, of, config, where=where)
               if is_joined and name in config.table.labels else
               column.take(first) for name, column in columns.items()}
    splits = None if splits is None else splits.take(first)
    paths = unique.dictionary
    notes = [f'{len(of) - len(first):,} rows repeat an image']
  return table_source.build(
      functools.partial(files.read, root, paths), paths, columns, config,
      where=where, splits=splits, notes=notes, row_numbers=first)


def _number_images(
    paths: pa.DictionaryArray,
) -> tuple[Integer[np.ndarray, 'rows'], Integer[np.ndarray, 'paths']]:
  """Returns the number of the image of each row, and each image's first row.

  Images are numbered by their first rows.
  """
  of = paths.indices.to_numpy()
  return of, np.unique(of, return_index=True)[1]


def _check_repeated(
    paths: pa.Array, of: Integer[np.ndarray, 'rows'],
    first: Integer[np.ndarray, 'paths'],
    columns: Mapping[str, columns_lib.Column], where: str,
) -> None:
  """Raises if rows of one image differ in a column."""
  for name, column in columns.items():
    if pa.types.is_nested(column.type):
      continue  # Not single labels.
    cells, codes = columns_lib.encode(column)
    wrong = np.flatnonzero(codes != codes[first[of]])
    if len(wrong):
      row, before = int(wrong[0]), int(first[of[wrong[0]]])
      raise ValueError(
          f'Rows {before + 1} and {row + 1} of {where} are the same image, '
          f'{paths[row]}, but {name} is {cells[codes[before]]!r} and '
          f'{cells[codes[row]]!r}. Remove the wrong row; several labels of an '
          'image are joined with --config.data.target=multi.')


def read_rows(
    path: epath.Path, config: columns_lib.LabelConfig,
) -> dict[str, list[dict[str, Any]]]:
  """Returns the images of a table with the labels of their rows, by column.

  A table may have no labels.

  Raises:
    ValueError: as `open_table` does.
  """
  table, where = table_files.read(path), os.fspath(path)
  try:
    config = choose_columns(table, config, where=where)
  except protocol.NoLabels:
    config = choose_columns(
        table, dataclasses.replace(config, target='none'), where=where)
  paths = locate(table, path, config)
  if config.target != 'multi':
    _check_repeated(
        paths, *_number_images(paths.dictionary_encode()),
        {name: table[name] for name in config.table.labels}, where)
  found: dict[str, list[dict[str, Any]]] = {}
  for image, row in zip(paths.to_pylist(), table.select(
      list(config.table.labels)).to_pylist() or [{}] * len(paths)):
    found.setdefault(os.path.join(path.parent, image), []).append(row)
  return found


def locate(
    table: pa.Table, where: epath.Path, config: columns_lib.LabelConfig,
) -> pa.Array:
  """Returns the paths of a table's images, relative to its folder if below it.

  Raises:
    ValueError: if images are missing, with their number and the first ones.
  """
  written = ['' if cell is None else str(cell).strip()
             for cell in table[str(config.table.path)].to_pylist()]
  if '' in written:
    raise ValueError(
        f'{written.count(""):,} rows of {where} have no image path (the first: '
        f'row {written.index("") + 1}).')
  root = os.fspath(where.parent)
  folder = config.table.folder or root
  if not atomic_files.is_remote(folder):
    folder = os.path.abspath(folder)
  listing = functools.cache(_names_in)
  paths, missing = list[str](), list[str]()
  first = len(written)
  for name in written:
    name = name.replace('\\', '/') + config.table.suffix
    path = name if atomic_files.is_remote(name) else os.path.join(folder, name)
    files.check_address(path, where=f'image of {where}')
    if not atomic_files.is_remote(path):
      path = os.path.normpath(path)
    if os.path.basename(path) not in listing(os.path.dirname(path)):
      missing.append(path)
      first = min(first, len(paths))
    paths.append(files.relative_path(path, root))
  if missing:
    raise ValueError(
        f'{len(missing):,} of {len(paths):,} images of {where} do not exist '
        f'(the first: row {first + 1}): {files.shorten(missing)}.'
        + spelling.hint(missing[0])
        + suggest.folder_of_images(table, where, config))
  return columns_lib.texts(paths)


def _names_in(folder: str) -> frozenset[str]:
  """Returns the names in a folder; listing is fast on network file systems."""
  path = epath.Path(folder)
  return frozenset(files.names_in(path)) if path.is_dir() else frozenset()
