"""Opens what lies at a path, whichever layout it has.

  folders by class               folder
  a CSV, TSV or JSON-lines file  tables
  Parquet files                  parquet
  tar files                      tar_shards
  what TFDS prepared             tfds_files

Given are files (one, a pattern, a range in braces) or a folder that holds them.
Which of the layouts a folder has is told from the names in it; two at once are
an error. docs/data.md shows each.
"""

from collections.abc import Sequence
import dataclasses
import os

from etils import epath

from vit_jax.data.sources import class_folders as image_folder
from vit_jax.data.sources import parquet
from vit_jax.data.sources import protocol
from vit_jax.data.sources import rows
from vit_jax.data.sources import shards
from vit_jax.data.sources import tables
from vit_jax.data.sources import tar_shards
from vit_jax.data.sources import tfds


def is_path(name: str) -> bool:
  """Whether a name is a path by its look, before it is sought as another."""
  suffix = os.path.splitext(name)[1].lower()
  return (name.startswith(('/', './', '../', '~')) or name == '.'
          or '://' in name or suffix in (
              tables.SUFFIXES | parquet.SUFFIXES | tar_shards.SUFFIXES))


def open_path(name: str, understood: rows.Understood) -> protocol.Opened:
  """Opens files or a folder.

  Raises:
    ValueError: if nothing is there, or what is there is not understood.
  """
  paths = shards.expand(name)
  if len(paths) == 1 and paths[0].is_dir():
    return _open_folder(paths[0], understood)
  suffixes = {path.suffix.lower() for path in paths}
  if suffixes <= tables.SUFFIXES:
    return tables.open_tables(paths, understood)
  if suffixes <= parquet.SUFFIXES:
    return parquet.open_parquet(paths, understood, where=name)
  if suffixes <= tar_shards.SUFFIXES:
    return tar_shards.open_tars(paths, understood, where=name)
  raise ValueError(
      f'{name} (data.source) is of the kind(s) {", ".join(sorted(suffixes))}. '
      'Expected a folder, or files of one kind: .csv, .tsv or .jsonl (tables '
      'of images), .parquet, or .tar (WebDataset, not compressed). Unpack '
      'archives first.')


def _open_folder(
    root: epath.Path, understood: rows.Understood) -> protocol.Opened:
  if tfds.is_prepared(root):
    return tfds.open_folder(root)
  table_paths, unread = tables.find(root)
  found = {
      'Parquet files': shards.files_below(root, parquet.SUFFIXES),
      'tar files': shards.files_below(root, tar_shards.SUFFIXES),
      'tables': table_paths}
  there = {kind: paths for kind, paths in found.items() if paths}
  if len(there) > 1:
    raise ValueError(
        f'{root} (data.source) holds {_list(there)}. Give the files that are '
        f'meant: {next(iter(there.values()))[0]}')
  if found['Parquet files']:
    return parquet.open_parquet(
        found['Parquet files'], understood, where=str(root))
  if found['tar files']:
    return tar_shards.open_tars(
        found['tar files'], understood, where=str(root))
  if found['tables']:
    return tables.open_tables(found['tables'], understood)
  try:
    opened = image_folder.open_folder(root)
  except ValueError as error:
    raise ValueError(' '.join([str(error), *unread])) from error
  return dataclasses.replace(
      opened, description='; '.join([opened.description, *unread]))


def _list(there: dict[str, list[epath.Path]]) -> str:
  return ' and '.join(
      f'{kind} ({_names(paths)})' for kind, paths in there.items())


def _names(paths: Sequence[epath.Path]) -> str:
  return ', '.join(p.name for p in paths[:3]) + ', ...' * (len(paths) > 3)
