"""Opens a path in any supported layout.

  class folders           class_folders
  CSV, TSV, JSON lines    image_tables
  Parquet                 hugging_face
  WebDataset tars         webdataset
  TFDS folders            tfds
"""

from collections.abc import Mapping, Sequence
import os

from etils import epath

from vit_jax.data.sources import class_folders
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import file_sets
from vit_jax.data.sources import hugging_face
from vit_jax.data.sources import image_tables
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_files
from vit_jax.data.sources import tfds
from vit_jax.data.sources import webdataset


def is_path(name: str) -> bool:
  """Whether a name has the form of a path or an address."""
  return (name.startswith(('/', './', '../', '~')) or name == '.'
          or '://' in name or os.path.splitext(name)[1].lower() in (
              table_files.SUFFIXES | {'.parquet', '.tar'}))


def open_path(
    name: str, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  """Opens files, a folder, or a data set of the Hugging Face hub.

  Raises:
    ValueError: if it does not exist, or its layout is unknown or ambiguous.
  """
  if name.startswith(hugging_face.PREFIX):
    return hugging_face.open_hub(name, config)
  paths = file_sets.expand(name)
  if len(paths) == 1 and paths[0].is_dir():
    return _open_folder(paths[0], config)
  suffixes = {path.suffix.lower() for path in paths}
  if suffixes <= table_files.SUFFIXES:
    return image_tables.open_tables(paths, config)
  if suffixes == {'.parquet'}:
    return hugging_face.open_parquet(paths, config, where=name)
  if suffixes == {'.tar'}:
    return webdataset.open_tars(paths, config, where=name)
  raise ValueError(
      f'{name} (data.source) has files of type {", ".join(sorted(suffixes))}. '
      'Expected a folder, or files of one type: .csv, .tsv or .jsonl (tables '
      'of images), .parquet, or .tar (WebDataset, not compressed). Unpack '
      'archives first.')


def _open_folder(
    root: epath.Path, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  if tfds.is_prepared(root):
    return tfds.open_folder(root)
  found = {'Parquet files': file_sets.files_below(root, '.parquet'),
           'tar files': file_sets.files_below(root, '.tar'),
           'tables': table_files.find(root)}
  found = {kind: paths for kind, paths in found.items() if paths}
  if len(found) > 1:
    raise ValueError(
        f'{root} (data.source) holds {_list(found)}. Give the files to use: '
        f'{next(iter(found.values()))[0]}')
  match found:
    case {'Parquet files': paths}:
      return hugging_face.open_parquet(paths, config, where=str(root))
    case {'tar files': paths}:
      return webdataset.open_tars(paths, config, where=str(root))
    case {'tables': paths}:
      return image_tables.open_tables(paths, config)
  return class_folders.open_folder(root)


def _list(found: Mapping[str, Sequence[epath.Path]]) -> str:
  return ' and '.join(
      f'{kind} ({", ".join(p.name for p in paths[:3])}'
      f'{", ..." * (len(paths) > 3)})' for kind, paths in found.items())
