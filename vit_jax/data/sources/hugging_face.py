"""Parquet files and data sets of the Hugging Face hub, by `datasets`.

`datasets` converts the files once to memory-mapped Arrow files in
$HF_DATASETS_CACHE (default ~/.cache/huggingface/datasets), which take the disk
space of the data set and make shuffled reads fast. Worker processes share them.
"""

import bisect
from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import os
import re
from typing import Any

from etils import epath
import pyarrow as pa
import pyarrow.parquet as pq

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import file_sets
from vit_jax.data.sources import image_files
from vit_jax.data.sources import image_tables
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_source

PREFIX = 'hf://datasets/'

_ADDRESS = re.compile(
    re.escape(PREFIX) + r'(?P<path>[^@:]+)(@(?P<revision>[^:]+))?'
    r'(:(?P<name>.+))?')
_IMAGE_NAMES = (
    'image', 'img', 'images', 'jpg', 'jpeg', 'png', 'picture', 'bytes')


@dataclasses.dataclass(frozen=True, eq=False)
class ArrowImages:
  """An image column of memory-mapped Arrow files.

  Attributes:
    table: `datasets.Dataset` with one column: file contents, or {'bytes',
      'path'}.
    names: names of the files or splits that the rows come from, for keys.
    ends: end row of each.
  """
  table: Any
  names: tuple[str, ...]
  ends: tuple[int, ...]

  def read(self, row: int) -> bytes:
    value, = self.table[row].values()
    data = value['bytes'] if isinstance(value, dict) else value
    if data is None:
      raise ValueError(
          'the image is stored as a path only, not as bytes. Write the data '
          'set with its images (Hugging Face: embed_external_files=True), or '
          'download its files and open their folder.')
    return data

  def key(self, row: int) -> str:
    file = bisect.bisect_right(self.ends, row)
    first = self.ends[file - 1] if file else 0
    return f'{self.names[file]} {row - first}'


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
        f'{PREFIX}USER/NAME[@REVISION][:CONFIG].')
  try:
    found = datasets.load_dataset(**match.groupdict())
  except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError
          ) as error:
    raise ValueError(
        f'{address} (data.source) cannot be opened: {error}') from error
  lengths = {name: len(split) for name, split in found.items()}
  splits = [table_source.split_name(name) for name, length in lengths.items()
            for _ in range(length)]
  return _open(
      datasets.concatenate_datasets(list(found.values())), config,
      where=address, names=tuple(lengths), lengths=list(lengths.values()),
      splits=splits, declared={
          name: _class_names(feature)
          for name, feature in next(iter(found.values())).features.items()})


def open_parquet(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens Parquet files as one data set.

  Raises:
    ValueError: if a file is damaged, files have different columns, or images or
      labels are not found.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  texts = [os.fspath(path) for path in paths]
  lengths, declared = _read_footers(texts)
  table = datasets.load_dataset('parquet', data_files=texts, split='train')
  of_file = file_sets.splits_of(paths, where=where)
  return _open(
      table, config, where=where,
      names=tuple(file_sets.relative_names(paths)),
      lengths=lengths, declared=declared, splits=of_file and [
          split for split, length in zip(of_file, lengths)
          for _ in range(length)])


def _open(
    table: Any, config: columns_lib.LabelConfig, *, where: str,
    names: tuple[str, ...], lengths: Sequence[int],
    splits: Sequence[str] | None,
    declared: Mapping[str, tuple[str, ...] | None],
) -> protocol.DatasetSplits:
  """Builds splits of an Arrow table whose rows come from several files."""
  image = _image_column(table.features, config.table.path)
  texts = [name for name in table.column_names
           if not _holds_bytes(table.features.arrow_schema.field(name).type)]
  if image is not None:
    config = dataclasses.replace(
        config, table=dataclasses.replace(config.table, path=None))
  sample = table.data.table.select(texts).slice(0, 1000).to_pydict()
  columns = columns_lib.choose_columns(
      sample, config, where=where,
      is_path=image_files.is_image if image is None else None)
  labels = {name: table.data.column(name).to_pylist() for name in texts
            if name in (columns.path, *columns.labels, columns.split,
                        columns.key)}
  if image is None:
    path = epath.Path(where)
    path = path / names[0] if path.is_dir() else path
    return image_tables.open_images(
        image_tables.locate(labels[columns.path or ''], path, config.table),
        labels, columns, config, where=where, root=os.fspath(path.parent),
        splits=splits)
  name, class_names = columns.labels[0], None
  if declared.get(name) and len(columns.labels) == 1:
    class_names = declared[name]
    # `datasets` writes -1 for a missing class.
    labels[name] = [None if v == -1 else v for v in labels[name]]
  ends = tuple(itertools.accumulate(lengths))
  return table_source.build(
      ArrowImages(_undecoded(table, image), names, ends), labels, columns,
      config, where=where, splits=splits, class_names=class_names)


def _read_footers(
    paths: Sequence[str],
) -> tuple[list[int], dict[str, tuple[str, ...] | None]]:
  """Returns the number of rows of each file, and class names by column.

  Raises:
    ValueError: if a file is damaged, or columns or class names differ: the same
      class index would then be different classes.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  lengths = []
  declared: dict[str, tuple[str, ...] | None] = {}
  for path in paths:
    try:
      with epath.Path(path).open('rb') as file:
        footer = pq.ParquetFile(file)
        lengths.append(footer.metadata.num_rows)
        features = datasets.Features.from_arrow_schema(footer.schema_arrow)
    except (pa.ArrowInvalid, OSError) as error:
      raise ValueError(
          f'{path} is truncated, or not a Parquet file: {error}') from error
    declared = declared or dict.fromkeys(features)
    if set(features) != set(declared):
      raise ValueError(
          f'{path} has the columns {", ".join(features)}, but {paths[0]} has '
          f'{", ".join(declared)}. Files of one data set must have the same '
          'columns; give the files to use: data.source=FOLDER/NAME*.parquet')
    for column, feature in features.items():
      names, earlier = _class_names(feature), declared[column]
      if names and earlier and names != earlier:
        raise ValueError(
            f'{path} declares the classes {_some(names)} of column '
            f'{column!r}, but another file declares {_some(earlier)}: the same '
            'index would be different classes. Rewrite the files with the '
            'same class names in the same order.')
      declared[column] = earlier or names
  return lengths, declared


def _some(names: Sequence[str]) -> str:
  more = f', ... ({len(names):,} in all)' if len(names) > 6 else ''
  return ', '.join(names[:6]) + more


def _class_names(feature: Any) -> tuple[str, ...] | None:
  """Returns the names of a `ClassLabel`, or of a list of them."""
  feature = getattr(feature, 'feature', feature)
  names = getattr(feature, 'names', None)
  return tuple(map(str, names)) if names else None


def _holds_bytes(kind: pa.DataType) -> bool:
  if pa.types.is_struct(kind):
    index = kind.get_field_index('bytes')
    return index >= 0 and _holds_bytes(kind.field(index).type)
  return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _image_column(features: Any, chosen: str | None) -> str | None:
  """Returns the column of image bytes; None if there are only paths.

  Raises:
    ValueError: if several columns could hold the images.
  """
  found = [name for name in features
           if _holds_bytes(features.arrow_schema.field(name).type)]
  if chosen is not None:
    return chosen if chosen in found else None
  named = [name for name in found if name.lower() in _IMAGE_NAMES]
  if len(found) > 1 and len(named) != 1:
    raise ValueError(
        f'Several columns could hold the images: {", ".join(found)}. Set '
        '--config.data.table.path=COLUMN')
  return (named or found or [None])[0]


def _undecoded(table: Any, image: str) -> Any:
  """Returns the image column as file contents."""
  import datasets  # pylint: disable=g-import-not-at-top
  table = table.select_columns([image])
  if isinstance(table.features[image], datasets.Image):
    table = table.cast_column(image, datasets.Image(decode=False))
  return table
