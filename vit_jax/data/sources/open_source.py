"""Opens a dataset by name.

  'digits'             builtin: no files
  'shapes'             drawn by the leaf `shapes`
  a path               class folders, tables, Parquet, tars, TFDS folders
  'hf://datasets/...'  the Hugging Face hub
  'vtab/dtd'           a task of VTAB-1k, in the leaf `sweep`
  'module:function'    the user's own: a function of the section `data`
  any other name       tfds: prepared by TensorFlow Datasets

Each kind of source is imported when one is opened; `registry` lists them.
"""

import dataclasses
import os
import typing

from etils import epath

from vit_jax import registry
from vit_jax.data import config as data_config
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import groups as groups_lib
from vit_jax.exceptions import UserError


def open_splits(
    config: data_config.DataConfig, *, source: str | None = None,
    whole: bool = False,
) -> protocol.DatasetSplits:
  """Opens all splits of the section's source or another; some may be empty.

  With `whole`, or for training if there is a `val_source`, your own files are
  not divided by a hash: without splits, all are `train`.

  Raises:
    UserError: if there is no such dataset, with the remedy, or if labels are
      configured for a dataset that declares its own.
  """
  name = source or config.source
  if source is None and config.val_source:
    from vit_jax.data.sources import validation
    trained = open_splits(
        dataclasses.replace(config, val_source=''), whole=True)
    same = dataclasses.replace(config, target='none') if (
        trained.no_labels and not config.target) else config
    return validation.add(trained, open_splits(
        same, source=config.val_source, whole=True), config)
  labels = columns_lib.LabelConfig(
      config.target, config.table, config.holdout, config.group,
      config.divided_groups)
  if source is None and not files.is_path(name):
    _check_undeclared(labels, name)
  opened = _open(name, config, dataclasses.replace(
      labels, holdout=0.0 if whole else config.holdout))
  if whole and [*opened.splits] == ['train']:
    opened = dataclasses.replace(opened, eval_split='train')
  if source is None:
    groups_lib.check_present(opened.splits, config.group, name=name)
  return opened


def _check_undeclared(config: columns_lib.LabelConfig, name: str) -> None:
  """Raises a UserError if settings of files are set for another source."""
  if (config.target not in ('', 'masks')
      or config.table != columns_lib.TableConfig()
      or config.holdout not in (0, columns_lib.HOLDOUT)):
    raise UserError(
        'data.target, data.table and data.holdout describe your own files, '
        f'but data.source is {name!r}, which declares its labels and splits. '
        'Remove them.')


def _open(
    name: str, config: data_config.DataConfig, labels: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  if target := registry.SOURCES.get(name[:name.find('/') + 1] or name):
    return registry.load(target)(name, config)
  if files.is_path(name):
    return open_path(name, labels)
  if registry.is_target(name):
    return _open_own(name, config)
  return registry.load(registry.TFDS)(name, config)


def _open_own(
    name: str, config: data_config.DataConfig) -> protocol.DatasetSplits:
  """Calls a function of the user.

  Its annotation must say that it returns a dataset: a name in a checkpoint
  could be that of any other function.
  """
  function = registry.find(name, {}, what='data.source')
  hints = typing.get_type_hints(function) if callable(function) else {}
  if hints.get('return') is not protocol.DatasetSplits:
    raise UserError(
        f'data.source is {name!r}, which must be a function (config: '
        'data.DataConfig) -> data.DatasetSplits with this annotation, but is '
        f'{function!r}.')
  return function(config)


def open_path(
    name: str, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  """Opens files, a folder, or a dataset of the Hugging Face hub.

  Images whose labels cannot be found are opened without; `no_labels` says why.

  Raises:
    UserError: if it does not exist, or its layout is not one of docs/data.md.
  """
  try:
    return _open_path(name, config)
  except protocol.NoLabels as error:
    if config.target:
      raise
    reason = error
  try:
    opened = _open_path(name, dataclasses.replace(config, target='none'))
  except UserError:  # There are no images either.
    raise reason from None
  return dataclasses.replace(opened, no_labels=str(reason))


def _open_path(
    name: str, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  if name.startswith('hf://'):
    return registry.load(registry.FILES['hub'])(name, config)
  kind, paths = _find(name, files.expand(name))
  where = name if len(paths) > 1 else os.fspath(paths[0])
  if kind == 'TFDS folder':
    _check_undeclared(config, where)
  if text := protocol.suggest('question_files', paths):
    raise UserError(text)
  try:
    return registry.load(registry.FILES[kind])(paths, config, where=where)
  except protocol.Unconventional as error:
    raise type(error)(str(error) + protocol.suggest(
        'advise', paths[0], config, str(error))) from error


def _find(
    name: str, paths: list[epath.Path]) -> tuple[str, list[epath.Path]]:
  """Returns how files are opened (`registry.FILES`), and those to open.

  Raises:
    UserError: if a folder holds data of two kinds, or files have several.
  """
  if len(paths) == 1 and paths[0].is_dir():
    from vit_jax.data.sources import tfds_folders
    if tfds_folders.is_prepared(paths[0]):
      return 'TFDS folder', paths
    found = _files_of_folder(paths[0])
    if not found:
      return 'folder', paths
    paths = found
  return _kind(name, paths), paths


def _files_of_folder(root: epath.Path) -> list[epath.Path]:
  """Returns `metadata.*`, Parquet or tar files; [] in a folder of images."""
  tables = files.files_with(root, {*files.TABLE_SUFFIXES, '.parquet'})
  metadata = [path for path in tables if path.stem == 'metadata']
  found = [of for of in (
      metadata, [path for path in files.files_below(root, '.parquet')
                 if path.stem != 'metadata'],
      files.files_below(root, '.tar')) if of]
  if found and not metadata:
    folders = [root / name for name in files.subfolders(root)
               if files.has_images(root / name)]
    found += [folders] * (len(folders) > 1)
  if len(found) > 1:
    raise UserError(
        f'{root} (data.source) holds {files.shorten(found[0])} and '
        f'{files.shorten(found[1])}. Name those to use: '
        "--config.data.source='FOLDER/*.parquet'")
  return found[0] if found else []


def _kind(name: str, paths: list[epath.Path]) -> str:
  """Returns how files of one kind are opened."""
  suffixes = {path.suffix.lower() for path in paths}
  kind = next((kind for kind, known in (
      ('table', files.TABLE_SUFFIXES), ('Parquet files', {'.parquet'}),
      ('tar files', {'.tar'}), ('images', files.IMAGE_SUFFIXES))
               if suffixes <= known), '')
  if kind == 'Parquet files' and len(paths) == 1:
    from vit_jax.data.sources import table_files
    if not table_files.holds_images(paths[0]):
      kind = 'table'
  if not kind or (kind == 'table' and len(paths) > 1):
    raise UserError(
        f'{name} (data.source) has {len(paths):,} files of type '
        f'{", ".join(sorted(suffixes))}. Expected a folder, one table (.csv, '
        '.tsv, .jsonl, .parquet), or files of one type: .parquet or .tar '
        '(WebDataset, not compressed) with images, or images without labels. '
        'A table of validation data is data.val_source.')
  return kind
