"""Parquet files with images in them, as Hugging Face keeps data sets.

An image is a column of bytes, or a struct {bytes, path}. Labels are read at
the start, by column, without the images. Images are read by row group, the
unit in which Parquet lies on disk: the last few stay in memory, and rows come
group by group where order is free. Shuffled training reads a whole group for
nearly every image, so small groups are fast ones: docs/data.md has figures.
"""

import collections
from collections.abc import Sequence
import dataclasses
import functools
import json
import os
import threading
from typing import Any

from etils import epath
from jaxtyping import Int64
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vit_jax.data.sources import protocol
from vit_jax.data.sources import rows
from vit_jax.data.sources import shards
from vit_jax.data.sources import table_images
from vit_jax.data.sources import tables

SUFFIXES = frozenset({'.parquet'})

# What a process keeps of row groups: one, whatever it takes, and what others
# there is room for.
_CACHE_BYTES = 256 * 2**20
_OPEN_FILES = 32
_BATCH_ROWS = 1024
# A row group that takes longer to read than its image takes to decode.
_SLOW_BYTES = 4 * 2**20
# A row group that fills a memory: Arrow holds it whole as it lies in the file,
# and once more as values, in whichever way its pages are asked for.
_LARGE_BYTES = 2**30
_PEAK = 2.1


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
  """A column of images in Parquet files.

  Attributes:
    paths: the files.
    names: of them, relative to their folder, for keys.
    column: 'image', or 'image.bytes' of a struct.
    ends: how many rows there are up to the end of each row group.
    file_of: the file of each row group.
    first_of: the number of each file's first row group.
  """
  paths: tuple[str, ...]
  names: tuple[str, ...]
  column: str
  ends: Int64[np.ndarray, 'groups']
  file_of: Int64[np.ndarray, 'groups']
  first_of: Int64[np.ndarray, 'files']

  def read(self, row: int) -> bytes:
    group = int(np.searchsorted(self.ends, row, side='right'))
    file = int(self.file_of[group])
    values = _groups.get(
        self.paths[file], group - int(self.first_of[file]), self.column)
    first = int(self.ends[group - 1]) if group else 0
    data = values[row - first].as_py()
    if data is None:
      raise ValueError(
          f'the image is not in {self.paths[file]}: its column {self.column} '
          'is empty there. Write the data set again with the bytes of its '
          'images (Hugging Face: embed_external_files=True).')
    return data

  def key(self, row: int) -> str:
    group = int(np.searchsorted(self.ends, row, side='right'))
    file = int(self.file_of[group])
    first = int(self.first_of[file])
    before = int(self.ends[first - 1]) if first else 0
    return f'{self.names[file]} {row - before}'


class _Groups:
  """The row groups that this process read last."""

  def __init__(self):
    self._lock = threading.Lock()
    self._kept: collections.OrderedDict[Any, pa.ChunkedArray] = (
        collections.OrderedDict())

  def clear(self) -> None:
    with self._lock:
      self._kept.clear()

  def get(self, path: str, group: int, column: str) -> pa.ChunkedArray:
    """Returns a column of a row group; a file is read by one thread at once."""
    key = (path, group, column)
    with self._lock:
      if key not in self._kept:
        # The last are let go before, or the peak would be higher by them.
        self._forget(_CACHE_BYTES - _image_bytes(path, group, column))
        # A fifth less at the peak than by `read_row_group`.
        values = pa.Table.from_batches(list(_open(path).iter_batches(
            _BATCH_ROWS, row_groups=[group], columns=[column]))).column(0)
        while pa.types.is_struct(values.type):
          values = pa.chunked_array(
              [chunk.field(0) for chunk in values.chunks],
              values.type.field(0).type)
        self._kept[key] = values
      self._kept.move_to_end(key)
      return self._kept[key]

  def _forget(self, num_bytes: int) -> None:
    """Keeps no more than so many bytes."""
    while self._kept and sum(
        kept.nbytes for kept in self._kept.values()) > num_bytes:
      self._kept.popitem(last=False)


_groups = _Groups()  # Of this process: workers start with an empty one.
os.register_at_fork(after_in_child=_groups.__init__)  # type: ignore[misc]


@functools.lru_cache(_OPEN_FILES)
def _open(path: str) -> pq.ParquetFile:
  """Returns an open file; footers are read once."""
  try:
    if '://' in path:
      return pq.ParquetFile(epath.Path(path).open('rb'))
    return pq.ParquetFile(path)
  except (pa.ArrowInvalid, OSError) as error:
    raise ValueError(
        f'{path} is cut off, or no Parquet file: {error}') from error


def open_parquet(
    paths: Sequence[epath.Path], understood: rows.Understood, *, where: str,
) -> protocol.Opened:
  """Opens Parquet files as one data set; reads all columns but the images.

  Raises:
    ValueError: if one is damaged, they have not the same columns, or it cannot
      be told which is the image and which the label.
  """
  _open.cache_clear()  # In a notebook, a file may have been written anew.
  _groups.clear()
  schema = _open(os.fspath(paths[0])).schema_arrow
  for path in paths[1:]:
    other = _open(os.fspath(path)).schema_arrow
    if set(other.names) != set(schema.names):
      raise ValueError(
          f'{path} has the columns {", ".join(other.names)}, but {paths[0]} '
          f'has {", ".join(schema.names)}. Files of one data set have the '
          'same; give those that are meant: data.source=FOLDER/NAME*.parquet')
  image = _image_column(schema, understood.table.path)
  binary = [name for name in schema.names if _is_image_type(
      schema.field(name).type)]
  of_file = shards.splits_of(paths, where=where)
  counts = [_open(os.fspath(path)).metadata.num_rows for path in paths]
  splits = of_file and [
      split for split, count in zip(of_file, counts) for _ in range(count)]
  # Of the others, only those that are needed: there may be long texts.
  sample = _sample(paths[0], [n for n in schema.names if n not in binary])
  if image is not None:
    understood = dataclasses.replace(understood, table=dataclasses.replace(
        understood.table, path=None))
  columns = rows.choose_columns(
      sample, understood, where=where,
      is_path=table_images.is_image if image is None else None)
  table = _read_columns(paths, [
      name for name in schema.names if name in (
          columns.path, *columns.labels, columns.split, columns.key)])
  if image is None:
    return _open_paths(paths, table, columns, understood, splits, where)
  names = _same_names(paths, columns.labels)
  if names is not None:
    name, = columns.labels
    # Hugging Face's way to say that there is no label.
    table[name] = [None if v == -1 else v for v in table[name]]
  reader = _images(paths, image, schema)
  groups = np.diff(reader.ends, prepend=0)
  return rows.assemble(
      reader, table, columns, understood, where=where, splits=splits,
      names=names, blocks=np.repeat(np.arange(len(groups)), groups),
      note=_note(reader))


def _images(
    paths: Sequence[epath.Path], image: str, schema: pa.Schema) -> Images:
  lengths: list[int] = []
  file_of: list[int] = []
  first_of: list[int] = []
  for number, path in enumerate(paths):
    metadata = _open(os.fspath(path)).metadata
    first_of.append(len(lengths))
    for group in range(metadata.num_row_groups):
      lengths.append(metadata.row_group(group).num_rows)
      file_of.append(number)
  texts = tuple(os.fspath(path) for path in paths)
  root = os.path.commonpath([os.path.dirname(text) for text in texts])
  inside = pa.types.is_struct(schema.field(image).type)
  return Images(
      texts, tuple(os.path.relpath(text, root) for text in texts),
      f'{image}.bytes' if inside else image, np.cumsum(lengths, dtype=np.int64),
      np.array(file_of, np.int64), np.array(first_of, np.int64))


def _image_bytes(path: str, group: int, column: str) -> int:
  """Returns what the images of a row group take in memory."""
  metadata = _open(path).metadata.row_group(group)
  return sum(found.total_uncompressed_size for found in map(
      metadata.column, range(metadata.num_columns))
             if found.path_in_schema == column)


def _note(reader: Images) -> str:
  """Returns what to say of files whose reading is slow, or takes memory."""
  sizes = [_image_bytes(path, group, reader.column) for path in reader.paths
           for group in range(_open(path).metadata.num_row_groups)]
  mean, largest = sum(sizes) / len(sizes), max(sizes)
  notes = []
  if sum(sizes) >= _CACHE_BYTES and mean >= _SLOW_BYTES:
    notes.append(
        f'shuffled, each image takes reading a row group of '
        f'{mean / 2**20:,.0f} MiB: smaller ones are faster (docs/data.md)')
  if largest > _LARGE_BYTES:
    notes.append(
        f'a row group of {largest / 2**30:,.1f} GiB is read whole, for which '
        f'each process takes up to {_PEAK * largest / 2**30:,.1f} GiB of '
        'memory: write smaller ones, with the lines of docs/data.md or once '
        'with `data prepare`')
  return '; '.join(notes)


def _open_paths(
    paths: Sequence[epath.Path], table: tables.Table, columns: rows.Columns,
    understood: rows.Understood, splits: Sequence[str] | None, where: str,
) -> protocol.Opened:
  """Opens a table of paths that is kept as Parquet."""
  found = table_images.locate(
      table[columns.path or ''], paths[0], understood.table, split='')
  return tables.from_paths(
      found, table, columns, understood, where=where, splits=splits,
      root=os.fspath(paths[0].parent))


def _sample(path: epath.Path, names: Sequence[str]) -> tables.Table:
  """Returns the columns of the first rows of a file."""
  batch = next(_open(os.fspath(path)).iter_batches(
      1_000, columns=list(names)), None)
  return {name: [] if batch is None else batch.column(name).to_pylist()
          for name in names}


def _read_columns(
    paths: Sequence[epath.Path], names: Sequence[str]) -> tables.Table:
  table: tables.Table = {name: [] for name in names}
  for path in paths:
    read = _open(os.fspath(path)).read(columns=list(names))
    for name in names:
      table[name] += read.column(name).to_pylist()
  return table


def _is_image_type(kind: pa.DataType) -> bool:
  """Whether a column can hold files: bytes, or a struct with bytes."""
  if pa.types.is_struct(kind):
    index = kind.get_field_index('bytes')
    return index >= 0 and _is_image_type(kind.field(index).type)
  return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _image_column(schema: pa.Schema, asked: str | None) -> str | None:
  """Returns the column of images, or None if there are only paths of them.

  Raises:
    ValueError: if it could be several.
  """
  found = [name for name in schema.names
           if _is_image_type(schema.field(name).type)]
  if asked is not None:
    return asked if asked in found else None
  named = [name for name in found if name.lower() in (
      'image', 'img', 'images', 'jpg', 'jpeg', 'png', 'picture', 'bytes')]
  if len(found) > 1 and len(named) != 1:
    raise ValueError(
        f'Several columns could hold the images: {", ".join(found)}. Name one: '
        '--config.data.table.path=COLUMN')
  return (named or found or [None])[0]


def _same_names(
    paths: Sequence[epath.Path], labels: Sequence[str],
) -> tuple[str, ...] | None:
  """Returns the names of the classes, of which no two files say others.

  Raises:
    ValueError: if they do: the same number would be another class.
  """
  found = [(path, names) for path in paths if (names := _class_names(
      _open(os.fspath(path)).schema_arrow, labels)) is not None]
  for path, names in found:
    if names != found[0][1]:
      raise ValueError(
          f'{path} names the classes {_some(names)}, but {found[0][0]} '
          f'{_some(found[0][1])}: the same number would be another class. '
          'Write them again with the same names in the same order.')
  return found[0][1] if found else None


def _some(names: Sequence[str]) -> str:
  more = f', ... ({len(names):,} in all)' if len(names) > 6 else ''
  return ', '.join(names[:6]) + more


def _class_names(
    schema: pa.Schema, labels: Sequence[str]) -> tuple[str, ...] | None:
  """Returns the names that Hugging Face's `ClassLabel` gives to indices."""
  text = (schema.metadata or {}).get(b'huggingface')
  if text is None or len(labels) != 1:
    return None
  try:
    feature = json.loads(text)['info']['features'][labels[0]]
  except (ValueError, KeyError, TypeError):  # Another program's notes.
    return None
  while isinstance(feature, (list, dict)) and 'names' not in feature:
    # [ClassLabel], or {'feature': ClassLabel} of a sequence.
    inner = feature[0] if isinstance(feature, list) and feature else (
        feature.get('feature') if isinstance(feature, dict) else None)
    if inner is None:
      return None
    feature = inner
  names = feature.get('names') if isinstance(feature, dict) else None
  return tuple(str(name) for name in names) if names else None
