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
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vit_jax import exceptions
from vit_jax import schema
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_files
from vit_jax.data.sources import table_source
from vit_jax.data.sources import tables as tables_lib
from vit_jax.exceptions import UserError
from vit_jax.extras.shards import file_keys

_PREFIX = 'hf://datasets/'

_ADDRESS = re.compile(
    re.escape(_PREFIX) + r'(?P<path>[^@:]+)(@(?P<revision>[^:]+))?'
    r'(:(?P<name>.+))?')


def open_hub(
    address: str, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  """Opens 'hf://datasets/USER/NAME[@REVISION][:CONFIG]'; downloads it once.

  Raises:
    UserError: if it cannot be downloaded, or images or labels are not found.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  match = _ADDRESS.fullmatch(address)
  if match is None:
    raise UserError(
        f'{address} (data.source) is not of the form '
        f'{_PREFIX}USER/NAME[@REVISION][:CONFIG].')
  with _explained(address):
    found = datasets.load_dataset(**match.groupdict(), keep_in_memory=False)
  lengths = [len(split) for split in found.values()]
  try:
    return _open(
        [*found.values()], config, where=address,
        keys=file_keys.FileKeys([*found], np.cumsum(lengths)),
        splits=columns_lib.of_codes(
            [*found], np.repeat(np.arange(len(found)), lengths)))
  except protocol.Unconventional as error:
    first = next(iter(found.values()))
    raise type(error)(str(error) + protocol.suggest(
        'advise_columns', first.data.table.slice(0, 1000), config,
        is_declared=len(_declared_images(first.features)) == 1)) from error


def open_parquet(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens Parquet files with images as one dataset.

  Raises:
    UserError: if a file is damaged, files have different columns, or images or
      labels are not found.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  lengths = _read_footers(paths)
  with _explained(where):
    # Unlike `load_dataset`, it does not report to the Hugging Face Hub.
    # It takes paths for patterns.
    converted = datasets.Dataset.from_parquet(
        [glob.escape(os.fspath(path)) for path in paths], keep_in_memory=False)
  return _open(
      [converted], config, where=where, keys=file_keys.FileKeys(
          files.relative_names(paths), np.cumsum(lengths)),
      splits=file_keys.splits_of_files(paths, lengths, where=where))


def _explained(where: str) -> contextlib.AbstractContextManager[None]:
  """Replaces the exceptions of `datasets` by an error of `data.source`."""
  return exceptions.replaced_by(lambda error: UserError(
      f'{where} (data.source) cannot be opened: '
      + ': '.join(dict.fromkeys(map(str, exceptions.causes(error))))))


def _open(
    converted: Sequence[Any], config: columns_lib.LabelConfig, *, where: str,
    keys: file_keys.FileKeys, splits: columns_lib.Column | None,
) -> protocol.DatasetSplits:
  """Builds splits of the Arrow files of `datasets`."""
  paths = tuple(file['filename'] for one in converted
                for file in one.cache_files)
  table, features = _read_arrow(paths), converted[0].features
  binary = table_files.image_columns(table.schema)
  class_names = _class_names(features)
  image = _choose_image(binary, features, config, where)
  _, columns = tables_lib.choose_columns(
      table.drop_columns(binary), config, where=where, has_paths=False,
      declared=next(iter(class_names)) if len(class_names) == 1 else None)
  if splits is not None and not config.table.split:
    # A column called `split` gives way to the names of files or splits.
    columns['splits'] = splits
  return table_source.build(table_source.Images(
      where=where, read=_Images(paths, image).read, keys=keys, **columns,
      class_names=class_names.get(','.join(columns['labels']))), config)


@dataclasses.dataclass(frozen=True, eq=False)
class _Images:
  """A column of images, bytes or {'bytes', 'path'}, of Arrow files.

  Each process maps the files to its memory.
  """
  paths: tuple[str, ...]
  column: str

  def __reduce__(self):
    return _Images, (self.paths, self.column)

  @functools.cached_property
  def _cells(self) -> pa.ChunkedArray:
    return _read_arrow(self.paths)[self.column]

  def read(self, row: int) -> bytes:
    cell = self._cells[row].as_py()
    content = cell['bytes'] if isinstance(cell, dict) else cell
    if not content:
      raise UserError(
          'the image is empty, or stored as a path only, not as bytes. Write '
          'the dataset with its images (Hugging Face: '
          'embed_external_files=True), or download its files and open their '
          'folder.')
    return content


def _read_arrow(paths: Sequence[str]) -> pa.Table:
  """Returns a table that stays in its files."""
  return pa.concat_tables(
      pa.ipc.open_stream(pa.memory_map(path)).read_all() for path in paths)


def _choose_image(
    binary: Sequence[str], features: Mapping[str, Any],
    config: columns_lib.LabelConfig, where: str,
) -> str:
  """Returns the column of images, declared by the file or by the user."""
  if config.table.path:
    return schema.check_name(
        config.table.path, binary, what=f'column of image bytes of {where}')
  found = _declared_images(features)
  if len(found) != 1:
    raise protocol.Unconventional(
        f'{where} does not declare one column of images; they may be in: '
        f'{", ".join(found or binary)}.')
  return found[0]


def _declared_images(features: Mapping[str, Any]) -> list[str]:
  """Returns the names of the columns that are declared to be images."""
  import datasets  # pylint: disable=g-import-not-at-top
  return [name for name, feature in features.items()
          if isinstance(feature, datasets.Image)]


def _read_footers(paths: Sequence[epath.Path]) -> list[int]:
  """Returns the number of rows of each file.

  Raises:
    UserError: if a file is damaged, or class names differ: the same class
      index would then be different classes.
  """
  import datasets  # pylint: disable=g-import-not-at-top
  footers = []
  for path in paths:
    with (exceptions.naming(f'{path} is truncated, or not a Parquet file'),
          path.open('rb') as file):
      footers.append(pq.ParquetFile(file))
  names_of = [_class_names(datasets.Features.from_arrow_schema(
      footer.schema_arrow)) for footer in footers]
  for path, names in zip(paths, names_of):
    if names != names_of[0]:
      raise UserError(
          f'{path} and {paths[0]} have different class names: {names} and '
          f'{names_of[0]}. Files of one dataset must have the same; name the '
          'files to use: --config.data.source=FOLDER/NAME*.parquet')
  return [footer.metadata.num_rows for footer in footers]


def _class_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
  """Returns the names of each `ClassLabel`, or list of them."""
  found = {
      column: getattr(getattr(feature, 'feature', feature), 'names', None)
      for column, feature in features.items()}
  return {column: tuple(map(str, names))
          for column, names in found.items() if names}
