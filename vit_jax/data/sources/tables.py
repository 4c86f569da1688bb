"""Tables of image files: a row per image, with its path and labels."""

from collections.abc import Mapping, Sequence
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
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import labels as labels_lib
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_files
from vit_jax.data.sources import table_source
from vit_jax.exceptions import UserError


def open_table(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens the only one of `paths`, a table of image files.

  Keys are relative to the table, so that moving its folder changes none.

  Raises:
    UserError: if the table is malformed or contradicts itself, columns have
      other names than declared, or images are missing.
  """
  table, root = table_files.read(paths[0]), os.fspath(paths[0].parent)
  path, columns = choose_columns(table, config, where=where)
  # Relative paths to images elsewhere: they, too, may move with the table.
  keys = columns_lib.texts(
      os.path.relpath(key, root) if os.path.isabs(key) else key
      for key in locate(table[path], paths[0], config).to_pylist())
  first = _first_rows(keys)
  labels = columns['labels']
  if repeated := int((first != np.arange(len(first))).sum()):
    others = {name: column for name, column in (
        ('split', columns['splits']), (config.group, columns['groups']))
              if column is not None}
    if config.target == 'multi' and len(labels) == 1:
      columns['labels'] = {name: _join_rows(
          column, first, config, where=where)
                           for name, column in labels.items()}
    else:
      others |= labels
    _check_repeated(keys, first, others, where)
  return table_source.build(table_source.Images(
      where=where, read=functools.partial(files.read, root, keys), keys=keys,
      rows=np.unique(first), **columns,
      notes=[f'{repeated:,} rows repeat an image'] * bool(repeated)), config)


def choose_columns(
    table: pa.Table, config: columns_lib.LabelConfig, *, where: str,
    has_paths: bool = True, declared: str | None = None,
) -> tuple[str, dict[str, Any]]:
  """Returns the name of the image column, and fields of `Images`.

  Args:
    table: the table.
    config: declared columns.
    where: names the table in errors.
    has_paths: whether a column has to hold the paths of image files.
    declared: label column that the file declares, if none is called `label`.

  Raises:
    protocol.NoLabels: if there is no label or image column.
    UserError: if a declared column is missing.
  """
  names, given = table.column_names, config.table
  for name in filter(None, (given.path if has_paths else '', given.split,
                            config.group, *given.labels)):
    schema.check_name(name, names, what=f'column of {where}')
  found = lambda *usual: next((name for name in usual if name in names), '')
  path = given.path or found(*columns_lib.PATHS)
  labels = given.labels or tuple(filter(
      None, [found(columns_lib.LABEL) or declared]))
  if config.target == 'none':
    labels = ()
  if (has_paths and not path) or not (labels or config.target == 'none'):
    expected = [path or columns_lib.PATHS[0]] * has_paths + [
        ','.join(labels) or columns_lib.LABEL] * (config.target != 'none')
    raise protocol.NoLabels(
        f'{where} has the columns {", ".join(names) or "(none)"}, but '
        f'{" and ".join(expected)} {("was", "were")[len(expected) > 1]} '
        'expected.')
  if config.group in labels:
    raise UserError(
        f'data.group is {config.group!r}, the label column of {where}, so that '
        'each class would be one group. Name another column.')
  column = lambda name: table[name] if name else None
  return path, {'labels': {name: table[name] for name in labels},
                'splits': column(given.split or found(columns_lib.SPLIT)),
                'groups': column(config.group)}


def _first_rows(paths: pa.Array) -> Integer[np.ndarray, 'rows']:
  """Returns the first row of the image of each row."""
  of = paths.dictionary_encode().indices.to_numpy()
  return np.unique(of, return_index=True)[1][of]


def _join_rows(
    column: columns_lib.Column, of: Integer[np.ndarray, 'rows'],
    config: columns_lib.LabelConfig, *, where: str,
) -> pa.Array:
  """Returns the labels of all rows of an image, in its first row.

  `of` is the first row of the image of each row.
  """
  items, row_of = labels_lib.split_cells(
      column, config, f'the labels of {where}')
  # Each label of an image once, in the order of its rows.
  pairs = pa.table({'row': of[row_of], 'label': items}).group_by(
      ['row', 'label'], use_threads=False).aggregate([]).sort_by('row')
  return labels_lib.to_lists(
      columns_lib.decode(pairs['label']),
      np.bincount(pairs['row'].to_numpy(), minlength=len(of)))


def _check_repeated(
    paths: pa.Array, first: Integer[np.ndarray, 'rows'],
    columns: Mapping[str, columns_lib.Column], where: str,
) -> None:
  """Raises if a row differs from the first one of its image in a column."""
  for name, column in columns.items():
    cells, codes = columns_lib.encode(column)
    for row in np.flatnonzero(codes != codes[first])[:1]:
      raise UserError(
          f'Rows {first[row] + 1} and {row + 1} of {where} are the same image, '
          f'{paths[row]}, but {name} is {cells[codes[first[row]]]!r} and '
          f'{cells[codes[row]]!r}. Remove the wrong row; several labels of an '
          'image in one column are joined with --config.data.target=multi.')


def read_rows(
    path: epath.Path, *configs: columns_lib.LabelConfig,
) -> dict[str, list[dict[str, Any]]]:
  """Returns the images of a table with the labels of their rows, by column.

  A table may have no labels. It is read with the first of `configs` whose
  columns it has, else with the last one.

  Raises:
    UserError: as `open_table` does.
  """
  table, where = table_files.read(path), os.fspath(path)
  names = {*table.column_names, None}
  config = next((one for one in configs if names.issuperset(
      (*one.table.labels, one.table.path))), configs[-1])
  try:
    column, columns = choose_columns(table, config, where=where)
  except protocol.NoLabels:
    column, columns = choose_columns(
        table, dataclasses.replace(config, target='none'), where=where)
  paths, labels = locate(table[column], path, config), columns['labels']
  if config.target != 'multi':
    _check_repeated(paths, _first_rows(paths), labels, where)
  found: dict[str, list[dict[str, Any]]] = {}
  for image, *cells in zip(
      paths.to_pylist(), *(of.to_pylist() for of in labels.values())):
    found.setdefault(files.join(path.parent, image), []).append(
        dict(zip(labels, cells)))
  return found


def locate(
    column: columns_lib.Column, where: epath.Path,
    config: columns_lib.LabelConfig,
) -> pa.Array:
  """Returns the paths of a table's images, relative to its folder if below it.

  Raises:
    UserError: if images are missing, with their number and the first ones.
  """
  root = atomic_files.absolute(where.parent)
  folder = atomic_files.absolute(config.table.folder or root)
  listing = functools.cache(_names_in)
  paths, missing = list[str](), dict[int, str]()
  for row, cell in enumerate(column.to_pylist()):
    name = '' if cell is None else str(cell).strip().replace('\\', '/')
    path = name + config.table.suffix
    files.check_address(path, where=f'image of {where}')
    path = files.join(folder, path)
    if not name or os.path.basename(path) not in listing(os.path.dirname(path)):
      missing[row] = path
    paths.append(files.relative_path(path, root))
  if missing:
    raise protocol.Unconventional(
        f'{len(missing):,} of {len(paths):,} images of {where} do not exist '
        f'(the first: row {min(missing) + 1}): '
        f'{files.shorten(missing.values())}.')
  return columns_lib.texts(paths)


def _names_in(folder: str) -> frozenset[str]:
  """Returns the names in a folder; listing is fast on network file systems."""
  path = epath.Path(folder)
  return frozenset(files.names_in(path)) if path.is_dir() else frozenset()
