"""Finding and reading CSV, TSV and JSON-lines files.

The csv module keeps cells as text ('007' is a class name) and is strict about
quotes and row lengths, which `datasets` and `pyarrow.csv` are not.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import csv
import io
import itertools
import re
from typing import Any

from etils import epath

from vit_jax import untrusted
from vit_jax.data import cells as cells_lib
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import table_source
from vit_jax.data.splits import split_strings

_Heads = Mapping[epath.Path, table_source.Table | None]

# Limits of empty cells: a table has one cell for each row and each key.
_FREE_CELLS, _MAX_EMPTY = 10**6, 64
_USUAL_NAMES = frozenset({'labels', 'label', 'metadata', 'annotations'})


def find(root: epath.Path) -> list[epath.Path]:
  """Returns the label tables of a folder.

  `labels.*`, `metadata.*`, one table per split (`train.csv`, `my_train.csv` or
  `train/metadata.csv`), else a single table of any name. If there are class
  folders, tables without image paths and unreadable tables with unusual names
  are ignored.
  """
  heads = {path: _read_head(path)
           for path in files.files_with(root, files.TABLE_SUFFIXES)}
  folders = files.subfolders(root)
  paths = [path for path in heads if _names_images(path, heads[path])] or (
      [] if len(folders) > 1 else [*heads])
  usual = [path for path in paths if _is_usual(path)]
  chosen = usual + _find_by_split(paths, heads, usual)
  below = [path for name in folders if split_strings.find_split(name)
           for path in files.files_with(root / name, files.TABLE_SUFFIXES)
           if _is_usual(path)]
  return chosen or below or (paths if len(paths) == 1 else [])


def _is_usual(path: epath.Path) -> bool:
  return path.stem.lower() in _USUAL_NAMES


def _find_by_split(
    paths: Sequence[epath.Path], heads: _Heads,
    usual: Sequence[epath.Path],
) -> list[epath.Path]:
  """Returns one table per split.

  Beside one with a usual name, they are an error later, because one would
  replace the other; but not one that lacks its columns, such as the labels.
  """
  found = [p for p in paths if split_strings.is_split_name(p.stem)]
  named = {None, *(split_strings.find_split(p.stem) for p in found)}
  words = [p for p in paths
           if split_strings.find_split(p.stem) not in named]
  splits = [split_strings.find_split(p.stem) for p in found + words]
  if usual and 'train' not in splits:
    columns = {path: {*(head or ())} for path, head in heads.items()}
    return [path for path in found + words
            if not any(columns[path] < columns[one] for one in usual)]
  is_complete = 'train' in splits and len({*splits}) == len(splits)
  return found + words if found or is_complete else []


def _read_head(path: epath.Path) -> table_source.Table | None:
  """Returns the first row of a table; None if it is unreadable."""
  try:
    return read(path, limit=1)
  except ValueError:
    return None


def _names_images(path: epath.Path, table: table_source.Table | None) -> bool:
  """Whether a table has an image column.

  An unreadable table counts if it has a usual name: opening it is an error.
  """
  if table is None:
    return _is_usual(path) or split_strings.is_split_name(path.stem)
  return columns_lib.image_column(table) is not None or any(
      files.is_image(value) for column in table.values() for value in column)


def read(
    path: epath.Path, *, limit: int | None = None) -> table_source.Table:
  """Returns the columns of a table, or of its first `limit` rows.

  Raises:
    ValueError: if the file is malformed, with the line.
  """
  text = untrusted.read_text(path)
  if path.suffix.lower() in ('.jsonl', '.ndjson'):
    return _read_json(text, path, limit)
  return _read_csv(text, path, limit)


def _lines(text: str, newline: str) -> Iterator[str]:
  # `StringIO` and `splitlines` would copy a large table several times.
  return io.TextIOWrapper(io.BytesIO(text.encode()), 'utf-8', newline=newline)


def _read_json(
    text: str, path: epath.Path, limit: int | None) -> table_source.Table:
  lines = ((number, line) for number, line in enumerate(_lines(text, '\n'), 1)
           if line.strip())

  def rows() -> Iterator[dict[str, Any]]:
    for number, line in itertools.islice(lines, limit):
      try:
        row = untrusted.parse_json(line)
      except ValueError as error:
        raise ValueError(
            f'Line {number} of {path} is not JSON: {error}') from error
      if not isinstance(row, dict):
        line = line.removesuffix('\n')
        raise ValueError(
            f'Line {number} of {path} must be an object such as {{"file_name": '
            f'"1.jpg", "label": "cat"}}, but is {line[:60]!r}.')
      yield row

  return to_columns(rows(), where=str(path))


def _read_csv(
    text: str, path: epath.Path, limit: int | None) -> table_source.Table:
  first = next(re.finditer('[^\n]*', text))[0]
  # Spreadsheets write ';' where ',' is the decimal separator.
  delimiter = '\t' if path.suffix.lower() == '.tsv' else max(
      ',;\t', key=first.count)
  reader = csv.reader(_lines(text, ''), delimiter=delimiter, strict=True)
  not_empty = filter(None, reader)
  last = 0
  try:
    header = [name.strip() for name in next(not_empty, [])]
    columns_lib.check_count(len(header), where=str(path))
    columns = [cells_lib.Builder() for _ in header]
    last = reader.line_num
    for row in itertools.islice(not_empty, limit):
      last = reader.line_num
      if len(row) != len(header):
        raise ValueError(
            f'Line {last} of {path} has {len(row)} cells, but the header has '
            f'{len(header)}: {delimiter.join(row)[:80]!r}. Put double quotes '
            f'around a cell that contains {delimiter!r}.')
      for column, cell in zip(columns, row):
        column.append(cell)
  except csv.Error as error:  # An unclosed quote would swallow all later rows.
    raise ValueError(
        f'The row of {path} that begins at line {last + 1} is not valid CSV: '
        f'{error}. A cell that begins with a double quote must end with one, '
        'and a quote within it must be doubled.') from error
  if any(map(files.is_image, header)):
    raise ValueError(
        f'{path} has no header: its first line is {first!r}. Add one, for '
        'example path,label.')
  repeated = [name for name, n in collections.Counter(header).items() if n > 1]
  if repeated:
    raise ValueError(f'{path} has two columns called {repeated[0]!r}.')
  table = {name: column.build() for name, column in zip(header, columns)}
  table.pop('', None)  # The row numbers that pandas writes.
  return table


def to_columns(
    rows: Iterable[Mapping[str, Any]], *, where: str) -> table_source.Table:
  """Returns rows of JSON objects as columns, None where a key is missing.

  Raises:
    ValueError: if there are too many keys, or most rows have few of them.
  """
  columns: dict[str, cells_lib.Builder] = {}
  count = num_cells = 0
  for row in rows:
    for name, cell in row.items():
      if name not in columns:
        columns[name] = cells_lib.Builder()
      columns[name].append(cells_lib.to_json(cell), count)
    count, num_cells = count + 1, num_cells + len(row)
  columns_lib.check_count(len(columns), where=where)
  if len(columns) * count > _FREE_CELLS + _MAX_EMPTY * num_cells:
    raise ValueError(
        f'The {count:,} rows of {where} have {len(columns):,} different keys,'
        ' and most rows have few of them. Give all rows the same keys.')
  return {name: column.build(cells_lib.parse_json, count)
          for name, column in columns.items()}
