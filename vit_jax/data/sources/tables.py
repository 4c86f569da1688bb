"""Tables of files: CSV, TSV or JSON lines with an image's path in each row.

    path,label,split
    images/1.jpg,cat,train

A table is given itself, or found in its folder: `labels.csv`, Hugging Face's
`metadata.csv` and `metadata.jsonl`, a table for each split (`train.csv`,
`test.csv`; `train/metadata.csv`), or the single one that is there. Paths begin
at the table's folder, or where most of the first ones are found below it.
"""

from collections.abc import Iterator, Mapping, Sequence
import csv
import dataclasses
import io
import json
import os
from typing import Any

from etils import epath

from vit_jax.data.sources import class_folders as image_folder
from vit_jax.data.sources import label_rules as label_rules_lib
from vit_jax.data.sources import protocol
from vit_jax.data.sources import rows
from vit_jax.data.sources import table_images
from vit_jax.data.splits import split_strings as split_strings_lib

SUFFIXES = frozenset({'.csv', '.tsv', '.jsonl', '.ndjson'})

_USUAL_NAMES = frozenset({'labels', 'label', 'metadata', 'annotations'})

Table = dict[str, list[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Files:
  """Images by the paths of a table, relative to the root or absolute."""
  root: str
  paths: tuple[str, ...]

  def read(self, row: int) -> bytes:
    return (epath.Path(self.root) / self.paths[row]).read_bytes()

  def key(self, row: int) -> str:
    return self.paths[row]


def find(root: epath.Path) -> tuple[list[epath.Path], list[str]]:
  """Returns the tables that say what the images of a folder are; perhaps none.

  A table of another name counts where it is the only one. One that names no
  images, such as a list of classes, does not count beside folders of them; nor
  does one that cannot be read, unless it is called as those that count are.

  Returns:
    The tables, and words on those that cannot be read and do not count.
  """
  here, unread = _tables_in(root), []
  classes = len(image_folder.subfolders(root)) > 1
  naming = []
  for path in here:
    try:
      if _names_images(path):
        naming.append(path)
    except ValueError as error:
      if not classes or _is_usual(path):
        raise
      unread.append(f'{path.name} is passed over ({error})')
  return _choose(root, naming if naming or classes else here), unread


def _is_usual(path: epath.Path) -> bool:
  return (path.stem.lower() in _USUAL_NAMES
          or split_strings_lib.is_split_name(path.stem))


def _choose(
    root: epath.Path, here: Sequence[epath.Path]) -> list[epath.Path]:
  """Returns which of the tables of a folder, or of its splits, are meant."""
  usual = [p for p in here if p.stem.lower() in _USUAL_NAMES]
  by_split = [p for p in here if split_strings_lib.is_split_name(p.stem)]
  if len(usual) == 1 or (usual and not by_split):
    return usual
  if by_split:
    return by_split
  below = [path for name in image_folder.subfolders(root)
           if split_strings_lib.is_split_name(name)
           for path in _tables_in(root / name)
           if path.stem.lower() in _USUAL_NAMES]
  if below:
    return below
  return list(here) if len(here) == 1 else []


def _tables_in(path: epath.Path) -> list[epath.Path]:
  return sorted(path / name for name in image_folder.names_in(path)
                if os.path.splitext(name)[1].lower() in SUFFIXES
                and not name.startswith('.'))


def _names_images(path: epath.Path) -> bool:
  """Whether a table has a column of images, by its name or by its look."""
  table = read(path, limit=1)
  return rows.path_column(table) is not None or any(
      table_images.is_image(value)
      for column in table.values() for value in column)


def open_tables(
    paths: Sequence[epath.Path], understood: rows.Understood,
) -> protocol.Opened:
  """Opens a table, or one for each split.

  Raises:
    ValueError: if a table cannot be read, its images are not there, or what it
      says contradicts itself.
  """
  if len(paths) > 1:
    names = [_split_of(path) for path in paths]
    if None in names or len(set(names)) < len(names):
      raise ValueError(
          f'There are {len(paths)} tables in {paths[0].parent}, and it is not '
          f'clear which is meant: {", ".join(p.name for p in paths)}. Give '
          'one as data.source, or call them train.csv, val.csv, test.csv.')
    # Which column is what, the table that is trained on says.
    paths = sorted(paths, key=lambda p: (
        rows.split_name(_split_of(p)) != 'train', p.name))
  where = str(paths[0]) if len(paths) == 1 else (
      f'{paths[0].parent}/{{{",".join(p.name for p in paths)}}}')
  joined: Table = {}
  splits: list[str] | None = [] if len(paths) > 1 else None
  found: list[str] = []
  columns = None
  for path in paths:
    table = read(path)
    if columns is None:
      columns = rows.choose_columns(
          table, understood, where=str(path), is_path=table_images.is_image)
    found += table_images.locate(
        table.get(columns.path or '', []), path, understood.table,
        split=_split_of(path) or '')
    count = len(next(iter(table.values()), []))
    if splits is not None:
      splits += [rows.split_name(_split_of(path))] * count
    for name in {*joined, *table, *columns.labels}:
      earlier = joined.setdefault(name, [None] * (len(found) - count))
      earlier += table.get(name, [None] * count)
  assert columns is not None
  return from_paths(found, joined, columns, understood, where=where,
                    splits=splits, root=_common(paths))


def from_paths(
    paths: Sequence[str], table: Table, columns: rows.Columns,
    understood: rows.Understood, *, where: str, root: str,
    splits: Sequence[str] | None = None,
) -> protocol.Opened:
  """Returns the data set of images at paths, with a row each.

  Args:
    paths: of the images, absolute or relative to where the process runs.
    table: columns by name.
    columns: which of them is what.
    understood: what a person said of them.
    where: the table, for messages.
    root: folder that keys are relative to, so that to move it changes nothing.
    splits: of each row, or None.
  """
  relative = tuple(_relative(path, root) for path in paths)
  if columns.split is not None:
    splits = rows.splits_in(table[columns.split], columns.split, where)
  kept = _check_duplicates(
      relative, table, columns, splits, where, understood.target == 'multi')
  if kept is not None:
    relative = tuple(relative[i] for i in kept)
    splits = splits and [splits[i] for i in kept]
    label, = columns.labels
    cells = label_rules_lib.cells(table[label], understood.table.separator)
    table = {name: [column[i] for i in kept] for name, column in table.items()}
    table[label] = [[value for i in group for value in cells[i]]
                    for group in kept.values()]
  return rows.assemble(
      Files(root, relative), table, columns, understood, where=where,
      splits=splits, note=_repeated(relative))


def _repeated(paths: Sequence[str]) -> str:
  """Returns words on images that have several rows of the same label."""
  again = len(paths) - len(set(paths))
  if not again:
    return ''
  return f'{again:,} rows name an image that is there already, and count again'


def _relative(path: str, root: str) -> str:
  """Returns a path as it is seen from a root; an absolute one elsewhere stays.

  However the root was written: splits are made by these names.
  """
  if '://' not in path and os.path.isabs(path) and not os.path.isabs(root):
    root = os.path.abspath(root)
  prefix = root.rstrip('/') + '/'
  if path.startswith(prefix):
    inside = path.removeprefix(prefix)
    return os.path.relpath(path, root) if '..' in inside else inside
  if '://' in path or os.path.isabs(path):
    return path
  return os.path.relpath(path, root)


def _common(paths: Sequence[epath.Path]) -> str:
  parents = sorted({os.fspath(path.parent) for path in paths}, key=len)
  if len(parents) == 1:
    return parents[0]
  return os.fspath(paths[0].parent.parent)


def _split_of(path: epath.Path) -> str | None:
  """Returns the split that a table is of, by its name or its folder's."""
  return next((name for name in (path.stem, path.parent.name)
               if split_strings_lib.is_split_name(name)), None)


# ---------------------------------------------------------------------- reading


def read(path: epath.Path, *, limit: int | None = None) -> Table:
  """Returns the columns of a table, the first `limit` rows of it.

  Raises:
    ValueError: if it is no table, with the line.
  """
  try:
    text = path.read_bytes().decode('utf-8-sig')  # Spreadsheets write a BOM.
  except UnicodeDecodeError as error:
    raise ValueError(
        f'{path} is not UTF-8 text ({error}). Save it as UTF-8.') from error
  if path.suffix.lower() in ('.jsonl', '.ndjson'):
    return _read_json(text, path, limit)
  return _read_csv(text, path, limit)


def _read_json(text: str, path: epath.Path, limit: int | None) -> Table:
  table: Table = {}
  count = 0
  # Not `splitlines`: a text may hold what Unicode calls the end of a line.
  for number, line in enumerate(text.split('\n'), 1):
    if not line.strip() or count == limit:
      continue
    try:
      row = json.loads(line)
    except ValueError as error:
      raise ValueError(
          f'Line {number} of {path} is no JSON: {error}') from error
    if not isinstance(row, dict):
      raise ValueError(
          f'Line {number} of {path} must be an object such as {{"file_name": '
          f'"1.jpg", "label": "cat"}}, but is {line[:60]!r}.')
    for name in {**table, **row}:
      table.setdefault(name, [None] * count).append(row.get(name))
    count += 1
  return table


def _read_csv(text: str, path: epath.Path, limit: int | None) -> Table:
  first = text.partition('\n')[0]
  # Spreadsheets of half the world write ';'.
  delimiter = '\t' if path.suffix.lower() == '.tsv' else max(
      ',;\t', key=first.count)
  lines = _strictly(text, path, delimiter)
  _, header = next(lines, (0, []))
  header = [name.strip() for name in header]
  if any(table_images.is_image(name) for name in header):
    raise ValueError(
        f'{path} has no line of names at its top: it begins with {first!r}. '
        'Put one there, for example path,label.')
  twice = {name for name in header if header.count(name) > 1}
  if twice:
    raise ValueError(f'{path} has two columns called {sorted(twice)[0]!r}.')
  table: Table = {name: [] for name in header}
  columns = list(table.values())
  for number, row in lines:
    if not row:
      continue
    if limit is not None and len(columns[0]) == limit:
      break
    if len(row) != len(header):
      raise ValueError(
          f'Line {number} of {path} has {len(row)} cells, but its top '
          f'names {len(header)} columns: {delimiter.join(row)[:80]!r}. A cell '
          f'with {delimiter!r} in it must be in double quotes.')
    for column, value in zip(columns, row):
      column.append(value)
  table.pop('', None)  # The row numbers that pandas writes.
  return table


def _strictly(
    text: str, path: epath.Path, delimiter: str,
) -> Iterator[tuple[int, list[str]]]:
  """Yields the number of each row's last line, and its cells.

  Raises:
    ValueError: for a quote that nobody closes: it would swallow all the rows
      that follow, and nobody would miss them.
  """
  lines = csv.reader(
      io.StringIO(text, newline=''), delimiter=delimiter, strict=True)
  last = 0
  try:
    for row in lines:
      last = lines.line_num
      yield last, row
  except csv.Error as error:
    raise ValueError(
        f'The row of {path} that begins at line {last + 1} is no CSV: {error}. '
        'A cell that begins with a double quote ends with one, and a quote '
        'within it is written twice.') from error


def _check_duplicates(
    paths: Sequence[str], table: Mapping[str, Sequence[Any]],
    columns: rows.Columns, splits: Sequence[str] | None, where: str,
    join: bool,
) -> dict[int, list[int]] | None:
  """Returns the rows to join into one, by the first of them, or None.

  Raises:
    ValueError: if an image is in two splits, or has two labels.
  """
  if len(set(paths)) == len(paths):
    return None
  by_path: dict[str, list[int]] = {}
  for row, path in enumerate(paths):
    by_path.setdefault(path, []).append(row)
  for path, group in by_path.items():
    if splits is not None and len({splits[row] for row in group}) > 1:
      raise ValueError(
          f'{path} is in several splits of {where}: '
          f'{", ".join(sorted({splits[row] for row in group}))}. What is '
          'trained on must not be evaluated on.')
  labels = [[str(table[name][row]) for name in columns.labels]
            for row in range(len(paths))]
  differing = [path for path, group in by_path.items()
               if any(labels[row] != labels[group[0]] for row in group)]
  if not differing:
    return None
  if join and len(columns.labels) == 1:
    return {group[0]: group for group in by_path.values()}
  path = differing[0]
  raise ValueError(
      f'{len(differing):,} images of {where} are there twice, with different '
      f'labels: {path} is '
      f'{" and ".join(sorted({"/".join(labels[r]) for r in by_path[path]}))}. '
      'Remove the wrong row; if an image may have several labels, '
      '--config.data.target=multi joins its rows.')
