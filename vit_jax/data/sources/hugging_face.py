"""Parquet files and datasets of the Hugging Face hub, by `datasets`.

`datasets` converts the files once to memory-mapped Arrow files in
$HF_DATASETS_CACHE (default ~/.cache/huggingface/datasets), which take the disk
space of the dataset and make shuffled reads fast. Worker processes share them.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import functools
import glob
import os
import re
from typing import Any

from etils import epath
from jaxtyping import Int64
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vit_jax import exceptions
from vit_jax import schema
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import offset_index
from vit_jax.data.sources import protocol
from vit_jax.data.sources import suggest
from vit_jax.data.sources import table_source
from vit_jax.data.sources import tables as tables_lib
from vit_jax.data.splits import split_strings

_PREFIX = 'hf://datasets/'

_ADDRESS = re.compile(
    re.escape(_PREFIX) + r'(?P<path>[^@:]+)(@(?P<revision>[^:]+))?'
    r'(:(?P<name>.+))?')


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
  lengths = [len(split) for split in found.values()]
  return _open(
      [*found.values()], config, where=address, names=list(found),
      lengths=lengths, splits=columns_lib.repeat(
          [split_strings.split_name(name) for name in found], lengths))


def open_parquet(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens Parquet files as one dataset.

  Raises:
    ValueError: if a file is damaged, files have different columns, or images or
      labels are not found.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  lengths, has_images = _read_footers(paths)
  if not has_images and len(paths) == 1:
    return tables_lib.open_table(paths[0], config)
  with _explained(where):
    # Unlike `load_dataset`, it does not report to the Hugging Face Hub.
    # It takes paths for patterns.
    converted = datasets.Dataset.from_parquet(
        [glob.escape(os.fspath(path)) for path in paths], keep_in_memory=False)
  return _open(
      [converted], config, where=where, names=files.relative_names(paths),
      lengths=lengths, splits=table_source.splits_of_files(
          paths, lengths, where=where))


def _explained(where: str) -> contextlib.AbstractContextManager[None]:
  """Replaces the exceptions of `datasets` by an error of `data.source`."""
  return exceptions.replaced_by(lambda error: ValueError(
      f'{where} (data.source) cannot be opened: '
      + ': '.join(dict.fromkeys(map(str, exceptions.causes(error))))))


def _open(
    converted: Sequence[Any], config: columns_lib.LabelConfig, *, where: str,
    names: Sequence[str], lengths: Sequence[int],
    splits: columns_lib.Column | None,
) -> protocol.DatasetSplits:
  """Builds splits of the Arrow files of `datasets`, which are read at offsets.

  Rows are those of files or splits of known `lengths`.
  """
  paths = [epath.Path(file['filename'])
           for one in converted for file in one.cache_files]
  mapped = [pa.memory_map(os.fspath(path)).read_buffer() for path in paths]
  tables = [pa.ipc.open_stream(content).read_all() for content in mapped]
  table, features = pa.concat_tables(tables), converted[0].features
  image = _choose_image(table, features, config, where)
  rest = table.drop_columns([field.name for field in table.schema
                             if _holds_bytes(field.type)])
  class_names = _class_names(features)
  given = config.table.split
  config = tables_lib.choose_columns(
      rest, config, where=where, has_paths=False,
      declared=next(iter(class_names)) if len(class_names) == 1 else None)
  columns = {name: table[name] for name in (
      *config.table.labels, *filter(None, [config.group]))}
  declared = None
  if len(config.table.labels) == 1:
    label, = config.table.labels
    declared = class_names.get(label)
    if declared and not pa.types.is_nested(columns[label].type):
      # `datasets` writes -1 for a missing class.
      columns[label] = pc.if_else(
          pc.equal(columns[label], -1), None, columns[label])
  records = offset_index.Records.join(paths, [
      _locate(one.column(image), content.address)
      for one, content in zip(tables, mapped)])
  # A column called `split` gives way to the names of files or splits.
  if config.table.split and (splits is None or given):
    splits = table_source.parse_splits(
        table[config.table.split], config.table.split, where)
  return table_source.build(
      functools.partial(_read_image, records),
      _Keys(names, np.cumsum(lengths)), columns, config, where=where,
      splits=splits, class_names=declared)


@dataclasses.dataclass(frozen=True, eq=False)
class _Keys:
  """Names of rows by their file or split, whose rows end at `ends`."""
  names: Sequence[str]
  ends: Int64[np.ndarray, 'files']

  def __len__(self) -> int:
    return int(self.ends[-1])

  def __getitem__(self, row: int) -> str:
    file = int(np.searchsorted(self.ends, row, side='right'))
    return f'{self.names[file]} {row - (self.ends[file - 1] if file else 0)}'


def _choose_image(
    table: pa.Table, features: Mapping[str, Any],
    config: columns_lib.LabelConfig, where: str,
) -> str:
  """Returns the column of images, declared by the file or by the user."""
  import datasets  # pylint: disable=g-import-not-at-top
  binary = [field.name for field in table.schema if _holds_bytes(field.type)]
  if config.table.path:
    schema.check_name(
        config.table.path, binary, what=f'column of image bytes of {where}')
    return config.table.path
  found = [name for name, feature in features.items()
           if isinstance(feature, datasets.Image)]
  if len(found) != 1:
    raise ValueError(suggest.image_column(
        found or binary, table.drop_columns(binary), config, where=where))
  return found[0]


def _locate(images: pa.ChunkedArray, address: int) -> pa.Table:
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
  return pa.table({'start': first, 'size': last - first})


def _read_image(records: offset_index.Records, row: int) -> bytes:
  if not records.sizes[row]:
    raise ValueError(
        'the image is empty, or stored as a path only, not as bytes. Write the '
        'data set with its images (Hugging Face: embed_external_files=True), '
        'or download its files and open their folder.')
  return records.read(row)


def _read_footers(paths: Sequence[epath.Path]) -> tuple[list[int], bool]:
  """Returns the number of rows of each file, and whether columns hold bytes.

  Raises:
    ValueError: if a file is damaged, or columns or class names differ: the same
      class index would then be different classes.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  lengths, has_images = list[int](), False
  first: Any = None
  for path in paths:
    with (exceptions.naming(f'{path} is truncated, or not a Parquet file'),
          path.open('rb') as file):
      footer = pq.ParquetFile(file)
      features = datasets.Features.from_arrow_schema(footer.schema_arrow)
    lengths.append(footer.metadata.num_rows)
    has_images |= any(
        _holds_bytes(field.type) for field in footer.schema_arrow)
    first = first or features
    for what, ours, theirs in (
        ('columns', [*features], [*first]),
        ('class names', _class_names(features), _class_names(first))):
      if sorted(ours) != sorted(theirs) or (
          what == 'class names' and ours != theirs):
        raise ValueError(
            f'{path} and {paths[0]} have different {what}: {ours} and {theirs}.'
            ' Files of one dataset must have the same; name the files to use: '
            '--config.data.source=FOLDER/NAME*.parquet')
  return lengths, has_images


def _class_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
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
