"""Opens a path in any supported layout."""

from collections.abc import Callable
import dataclasses
import functools
import os
from typing import Any

from etils import epath

from vit_jax.data.sources import class_folders
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import hugging_face
from vit_jax.data.sources import image_tables
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_files
from vit_jax.data.sources import tfds
from vit_jax.data.sources import tfds_folders
from vit_jax.data.sources import webdataset

# Suffixes and functions that open files with them.
_OPENERS: tuple[tuple[str, frozenset[str], Callable[..., Any]], ...] = (
    ('Parquet files', frozenset({'.parquet'}), hugging_face.open_parquet),
    ('tar files', frozenset({'.tar'}), webdataset.open_tars),
    ('tables', files.TABLE_SUFFIXES,
     lambda paths, config, where: image_tables.open_tables(paths, config)))


def open_path(
    name: str, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  """Opens files, a folder, or a dataset of the Hugging Face hub.

  Raises:
    ValueError: if it does not exist, or its layout is unknown or ambiguous.
  """
  if name.startswith(hugging_face.PREFIX):
    return hugging_face.open_hub(name, config)
  paths = files.expand(name)
  if len(paths) == 1 and paths[0].is_dir():
    return _open_folder(paths[0], config)
  found = {path.suffix.lower() for path in paths}
  for _, suffixes, open_files in _OPENERS:
    if found <= suffixes:
      return open_files(paths, config, where=name)
  raise ValueError(
      f'{name} (data.source) has files of type {", ".join(sorted(found))}. '
      'Expected a folder, or files of one type: .csv, .tsv or .jsonl (tables '
      'of images), .parquet, or .tar (WebDataset, not compressed). Unpack '
      'archives first.')


def _open_folder(
    root: epath.Path, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  if tfds_folders.is_prepared(root):
    return tfds.open_folder(root)
  found = []
  for kind, suffixes, open_files in _OPENERS:
    paths = (table_files.find(root) if kind == 'tables' else
             files.files_below(root, *suffixes))
    if paths:
      found.append((kind, paths, open_files))
  if not found:
    return class_folders.open_folder(root, holdout=config.holdout)
  if len(found) > 1:
    layouts = ' and '.join(
        f'{kind} ({files.shorten(p.name for p in paths)})'
        for kind, paths, _ in found)
    raise ValueError(
        f'{root} (data.source) holds {layouts}. Name the files to use: '
        f'{found[0][1][0]}')
  (_, paths, open_files), = found
  if not config.table.labels:
    config = dataclasses.replace(
        config, class_folders=functools.partial(class_folders.find, root))
  return open_files(paths, config, where=os.fspath(root))
