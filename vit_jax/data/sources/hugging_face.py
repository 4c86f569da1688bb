"""Parquet files and datasets of the Hugging Face hub, by `datasets`.

`datasets` converts the files once to memory-mapped Arrow files in
$HF_DATASETS_CACHE (default ~/.cache/huggingface/datasets), which take the disk
space of the dataset and make shuffled reads fast. Worker processes share them.
"""

import bisect
from collections.abc import Mapping, Sequence
import contextlib
import functools
import glob
import itertools
import json
import os
import re
from typing import Any

from etils import epath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vit_jax import exceptions
from vit_jax.data import cells as cells_lib
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import image_tables
from vit_jax.data.sources import offset_index
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_source
from vit_jax.data.splits import split_strings

_PREFIX = 'hf://datasets/'

_ADDRESS = re.compile(
    re.escape(_PREFIX) + r'(?P<path>[^@:]+)(@(?P<revision>[^:]+))?'
    r'(:(?P<name>.+))?')
_IMAGE_NAMES = (
    'image', 'img', 'images', 'jpg', 'jpeg', 'png', 'picture', 'bytes')

_ClassNames = Mapping[str, tuple[str, ...]]  # By column.


def open_hub(
    address: str, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  """Opens 'hf://datasets/USER/NAME[@REVISION][:CONFIG]'; downloads it once.

  Raises:
    ValueError: if it cannot be downloaded, or images or labels are not found.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  match = _ADDRESS.fullmatch(address)
  if match is None:
    raise ValueError(
        f'{address} (data.source) is not of the form '
        f'{_PREFIX}USER/NAME[@REVISION][:CONFIG].')
  with _explained(address):
    found = datasets.load_dataset(
        **match.groupdict(), keep_in_memory=False)
  return _open(
      [*found.values()], config, where=address, names=list(found),
      lengths=[len(split) for split in found.values()],
      splits=[split_strings.split_name(name) for name in found],
      class_names=_class_names(next(iter(found.values())).features))


def open_parquet(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens Parquet files as one dataset.

  Raises:
    ValueError: if a file is damaged, files have different columns, or images or
      labels are not found.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  lengths, class_names = _read_footers(paths)
  names = [glob.escape(os.fspath(path)) for path in paths]
  if chained := [name for name in names if '::' in name]:
    raise ValueError(
        f'{chained[0]} contains "::", which `datasets` reads as a chain of '
        'addresses. Rename the file or folder.')
  with _explained(where):
    # Unlike `load_dataset`, it does not report to the Hugging Face Hub.
    # It takes paths for patterns, which are escaped above.
    converted = datasets.Dataset.from_parquet(names, keep_in_memory=False)
  return _open(
      [converted], config, where=where, names=files.relative_names(paths),
      lengths=lengths, splits=files.splits_of(paths, where=where),
      class_names=class_names)


def _explained(where: str) -> contextlib.AbstractContextManager[None]:
  """Replaces the exceptions of `datasets` by an error of `data.source`."""
  return exceptions.replaced_by(lambda error: ValueError(
      f'{where} (data.source) cannot be opened: '
      + ': '.join(dict.fromkeys(map(str, exceptions.causes(error))))))


def _open(
    converted: Sequence[Any], config: columns_lib.LabelConfig, *, where: str,
    names: Sequence[str], lengths: Sequence[int], splits: Sequence[str] | None,
    class_names: _ClassNames,
) -> protocol.DatasetSplits:
  """Builds splits of the Arrow files of `datasets`, which are read at offsets.

  Rows are those of files or splits of known `lengths`. Columns stay mapped
  only until the labels are parsed.
  """
  paths = [epath.Path(file['filename'])
           for one in converted for file in one.cache_files]
  mapped = [pa.memory_map(os.fspath(path)).read_buffer() for path in paths]
  tables = [pa.ipc.open_stream(content).read_all() for content in mapped]
  table = pa.concat_tables(tables)
  image, config = _choose_columns(table, config, where)
  columns = config.table
  labels = _read_labels(table, columns, class_names, config.group)
  of_row = cells_lib.Column.repeat(splits, lengths) if splits else None
  if image is None:
    path = epath.Path(os.path.abspath(where))
    path = path / names[0] if path.is_dir() else path
    linked: set[str] = set()
    return image_tables.open_images(
        image_tables.locate(cells_lib.arrow_cells(
            table.column(columns.path)), path, columns, linked=linked),
        labels, config, where=where, root=os.fspath(path.parent),
        splits=of_row, linked=linked)
  records = offset_index.Records.join(paths, [
      _locate(one.column(image), content.address)
      for one, content in zip(tables, mapped)])
  return table_source.build(
      functools.partial(_read_image, records),
      functools.partial(_key, names, list(itertools.accumulate(lengths))),
      labels, config, where=where, num_rows=len(records), splits=of_row,
      class_names=_declared(columns, class_names))


def _choose_columns(
    table: pa.Table, config: columns_lib.LabelConfig, where: str,
) -> tuple[str | None, columns_lib.LabelConfig]:
  """Returns the column of image bytes, if there is one, and other roles."""
  binary = [field.name for field in table.schema if _holds_bytes(field.type)]
  image = _image_column(binary, config.table.path)
  if image is not None:
    config = config.with_columns(path=None)
  texts = table.drop_columns(binary)
  return image, columns_lib.choose_columns(
      texts.slice(0, 1000).to_pydict(), config, where=where,
      has_paths=image is None)


def _declared(
    columns: columns_lib.TableConfig, class_names: _ClassNames,
) -> tuple[str, ...] | None:
  """Returns the declared names of the classes of the only label column."""
  return (class_names.get(columns.labels[0]) if len(columns.labels) == 1
          else None)


def _read_labels(
    table: pa.Table, columns: columns_lib.TableConfig, class_names: _ClassNames,
    group: str,
) -> dict[str, cells_lib.Column]:
  """Returns the columns of labels, splits and groups."""
  found = {name: cells_lib.Column.from_arrow(table.column(name))
           for name in (*columns.labels, columns.split, group) if name}
  if _declared(columns, class_names):
    # `datasets` writes -1 for a missing class.
    label, = columns.labels
    found[label] = found[label].map(
        lambda value: None if value == -1 else value)
  return found


def _locate(images: pa.ChunkedArray, address: int) -> offset_index.Arrays:
  """Returns the places of images, bytes or {'bytes', 'path'}, in a file.

  The file is mapped to memory at `address`.
  """
  starts, ends = [], []
  for chunk in images.chunks:
    while pa.types.is_struct(chunk.type):
      chunk = chunk.field('bytes')
    _, offsets, content = chunk.buffers()
    width = 64 if pa.types.is_large_binary(chunk.type) else 32
    places = np.frombuffer(offsets, f'int{width}').astype(np.int64)[
        chunk.offset:chunk.offset + len(chunk) + 1] + (
            content.address - address if content else 0)
    starts.append(places[:-1])
    ends.append(places[1:])
  empty = np.zeros(0, np.int64)
  first, last = (np.concatenate([empty, *of]) for of in (starts, ends))
  return {'starts': first, 'sizes': last - first}


def _read_image(records: offset_index.Records, row: int) -> bytes:
  if not records.sizes[row]:
    raise ValueError(
        'the image is empty, or stored as a path only, not as bytes. Write the '
        'data set with its images (Hugging Face: embed_external_files=True), '
        'or download its files and open their folder.')
  return records.read(row)


def _key(names: Sequence[str], ends: Sequence[int], row: int) -> str:
  """Names a row by its file or split, whose rows end at `ends`."""
  file = bisect.bisect_right(ends, row)
  return f'{names[file]} {row - (ends[file - 1] if file else 0)}'


def _read_footers(
    paths: Sequence[epath.Path]) -> tuple[list[int], _ClassNames]:
  """Returns the number of rows of each file, and class names by column.

  Raises:
    ValueError: if a file is damaged, or columns or class names differ: the same
      class index would then be different classes.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  lengths: list[int] = []
  columns: set[str] = set()
  class_names: dict[str, tuple[str, ...]] = {}
  for path in paths:
    try:
      with path.open('rb') as file:
        footer = pq.ParquetFile(file)
        columns_lib.check_count(footer.metadata.num_columns, where=str(path))
        _check_num_classes(footer.schema_arrow.metadata or {})
        features = datasets.Features.from_arrow_schema(footer.schema_arrow)
    except Exception as error:  # Arrow and JSON within it raise many types.
      raise ValueError(
          f'{path} is truncated, or not a Parquet file: {error}') from error
    lengths.append(footer.metadata.num_rows)
    columns = columns or set(features)
    if set(features) != columns:
      raise ValueError(
          f'{path} has the columns {", ".join(features)}, but {paths[0]} has '
          f'{", ".join(sorted(columns))}. Files of one dataset must have the '
          'same columns; give the files to use: '
          'data.source=FOLDER/NAME*.parquet')
    for column, names in _class_names(features).items():
      if class_names.setdefault(column, names) != names:
        raise ValueError(
            f'{path} declares the classes {files.shorten(names, 6)} of column '
            f'{column!r}, but another file declares '
            f'{files.shorten(class_names[column], 6)}: the same index would be '
            'different classes. Rewrite the files with the same class names in '
            'the same order.')
  return lengths, class_names


def _check_num_classes(metadata: Mapping[bytes, bytes]) -> None:
  """Raises if `datasets` would name too many classes by their numbers."""
  declared = json.dumps(json.loads(metadata.get(b'huggingface', b'{}')))
  if found := re.search(r'"num_classes": (\d{7,})', declared):
    raise ValueError(f'it declares {found[1]} classes')


def _class_names(features: Mapping[str, Any]) -> _ClassNames:
  """Returns the names of each `ClassLabel`, or list of them."""
  found = {
      column: getattr(getattr(feature, 'feature', feature), 'names', None)
      for column, feature in features.items()}
  return {column: tuple(map(str, names))
          for column, names in found.items() if names}


def _holds_bytes(kind: pa.DataType) -> bool:
  if pa.types.is_struct(kind):
    index = kind.get_field_index('bytes')
    return index >= 0 and _holds_bytes(kind.field(index).type)
  return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _image_column(binary: Sequence[str], chosen: str | None) -> str | None:
  """Returns the column of image bytes; None if there are only paths.

  Raises:
    ValueError: if several columns could hold the images.
  """
  if chosen is not None:
    return chosen if chosen in binary else None
  named = [name for name in binary if name.lower() in _IMAGE_NAMES]
  if len(binary) > 1 and len(named) != 1:
    raise ValueError(
        f'Several columns could hold the images: {", ".join(binary)}. Set '
        '--config.data.table.path=COLUMN')
  return (*named, *binary, None)[0]
