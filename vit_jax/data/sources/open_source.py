"""Opens a dataset by name.

  'digits', 'shapes'   builtin: no files
  a path               class folders, tables, Parquet, tars, TFDS folders
  'hf://datasets/...'  the Hugging Face hub
  'vtab/dtd'           vtab: a task of VTAB-1k
  'module:function'    the user's own: a function of the section `data`
  any other name       tfds: prepared by TensorFlow Datasets

Each kind of source is imported when one is opened; `registry` lists them.
"""

import dataclasses
import os
import typing
from typing import Any

from etils import epath

from vit_jax import registry
from vit_jax.data import config as data_config
from vit_jax.data import known_datasets
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.sources import suggest
from vit_jax.data.splits import groups as groups_lib

_VTAB = 'vtab/'


def open_splits(
    config: data_config.DataConfig, *, source: str | None = None,
    whole: bool = False,
) -> protocol.DatasetSplits:
  """Opens all splits of the section's source or another; some may be empty.

  With `whole`, or for training if there is a `val_source`, your own files are
  not divided by a hash: without splits, all are `train`.

  Raises:
    ValueError: if there is no such dataset, with the remedy, or if labels are
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
  if source is None:
    groups_lib.check_present(opened.splits, config.group, name=name)
  return opened


def _check_undeclared(config: columns_lib.LabelConfig, name: str) -> None:
  """Raises a ValueError if settings of files are set for another source."""
  if dataclasses.replace(
      config, group='', divided_groups='error',
      holdout=config.holdout or columns_lib.HOLDOUT,
      target='' if config.target == 'masks' else config.target,
  ) != columns_lib.DEFAULT:
    raise ValueError(
        'data.target, data.table and data.holdout describe your own files, '
        f'but data.source is {name!r}, which declares its labels and splits. '
        'Remove them.')


def _open(
    name: str, config: data_config.DataConfig, labels: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  if target := _target(name):
    return registry.load(target)(name, config)
  if files.is_path(name):
    return open_path(name, labels)
  if registry.is_target(name):
    return _open_own(name, config)
  return registry.load(registry.TFDS)(name, config)


def _target(name: str) -> str | None:
  """Returns the entry of `registry.SOURCES` for a name, if there is one."""
  return registry.SOURCES.get(name[:name.find('/') + 1] or name)


def _open_own(
    name: str, config: data_config.DataConfig) -> protocol.DatasetSplits:
  """Calls a function of the user.

  Its annotation must say that it returns a dataset: a name in a checkpoint
  could be that of any other function.
  """
  function = registry.find(name, {}, what='data.source')
  hints = typing.get_type_hints(function) if callable(function) else {}
  if hints.get('return') is not protocol.DatasetSplits:
    raise ValueError(
        f'data.source is {name!r}, which must be a function (config: '
        'data.DataConfig) -> data.DatasetSplits with this annotation, but is '
        f'{function!r}.')
  return function(config)


def open_path(
    name: str, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  """Opens files, a folder, or a dataset of the Hugging Face hub.

  Images whose labels cannot be found are opened without; `no_labels` says why.

  Raises:
    ValueError: if it does not exist, or its layout is not one of docs/data.md.
  """
  try:
    return _open_path(name, config)
  except protocol.NoLabels as error:
    if config.target:
      raise
    reason = error
  try:
    opened = _open_path(name, dataclasses.replace(config, target='none'))
  except ValueError:  # There are no images either.
    raise reason from None
  return dataclasses.replace(opened, no_labels=str(reason))


def _open_path(
    name: str, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  if name.startswith('hf://'):
    return registry.load(registry.FILES['hub'])(name, config)
  paths = files.expand(name)
  where = name
  if len(paths) == 1 and paths[0].is_dir():
    root, where = paths[0], os.fspath(paths[0])
    found = _files_in(root)
    if found == 'TFDS folder':
      _check_undeclared(config, where)
      return registry.load(registry.FILES[found])(root)
    if isinstance(found, str):
      return registry.load(registry.FILES[found])(root, config)
    paths = found
  suffixes = {path.suffix.lower() for path in paths}
  kind = next((kind for kind, known in (
      ('table', files.TABLE_SUFFIXES), ('Parquet files', {'.parquet'}),
      ('tar files', {'.tar'}), ('images', files.IMAGE_SUFFIXES))
               if suffixes <= known), '')
  open_files = registry.load(registry.FILES[kind]) if kind else None
  if open_files is None or (kind == 'table' and len(paths) > 1):
    raise ValueError(
        f'{where} (data.source) has {len(paths):,} files of type '
        f'{", ".join(sorted(suffixes))}. Expected a folder, one table (.csv, '
        '.tsv, .jsonl, .parquet), or files of one type: .parquet or .tar '
        '(WebDataset, not compressed) with images, or images without labels. '
        'A table of validation data is data.val_source.')
  if kind == 'table':
    return open_files(paths[0], config)
  suggest.check_files(paths, where=where)
  if kind != 'images':
    return open_files(paths, config, where=where)
  if config.target != 'none':
    raise protocol.NoLabels(
        f'The images {where} have no labels. Give their folder, or a table.')
  texts = [*map(os.fspath, paths)]
  root_of = os.path.commonpath([*map(os.path.dirname, texts)])
  return open_files(
      [files.relative_path(path, root_of) for path in texts], config,
      where=where, root=root_of)


def _files_in(root: epath.Path) -> str | list[epath.Path]:
  """Returns the files in a folder that hold its data, or how it is opened."""
  from vit_jax.data.sources import tfds_folders
  if tfds_folders.is_prepared(root):
    return 'TFDS folder'
  found = [paths for paths in (
      [path for path in files.files_with(
          root, {*files.TABLE_SUFFIXES, '.parquet'})
       if path.stem == 'metadata'],
      files.files_below(root, '.parquet'),
      files.files_below(root, '.tar')) if paths]
  others = {path for paths in found[1:] for path in paths} - {*found[0]} if (
      found) else {*()}
  folders = [root / name for name in files.subfolders(root)] if found and (
      found[0][0].stem != 'metadata') else []
  if sum(map(files.has_images, folders)) > 1:
    others |= {*folders}
  if others:
    raise ValueError(
        f'{root} (data.source) holds {files.shorten(found[0])} and '
        f'{files.shorten(sorted(others))}. Name those to use: '
        "--config.data.source='FOLDER/*.parquet'")
  return found[0] if found else 'folder'


@dataclasses.dataclass(frozen=True)
class PlannedSplit(protocol.Source):
  """A split of known length whose files are not available."""
  name: str
  num_examples: int

  def __len__(self) -> int:
    return self.num_examples

  def __getitem__(self, index: int) -> dict[str, Any]:
    raise ValueError(f'{self.name} was opened for planning only.')

  def key(self, index: int) -> str:
    return str(index)


def open_planned(name: str) -> protocol.DatasetSplits | None:
  """Returns a dataset with the sizes of the table of known datasets.

  Returns None if the table lacks them. Reading an example is an error.
  """
  if name.startswith(_VTAB):
    from vit_jax.data import vtab
    row = vtab.planned(name.removeprefix(_VTAB))
  else:
    row = known_datasets.facts(name)
  if not row.num_examples or row.num_classes is None:
    return None
  return protocol.DatasetSplits(
      {split: PlannedSplit(name, count)
       for split, count in row.num_examples.items()},
      num_classes=row.num_classes, multi_label=bool(row.multi_label),
      eval_split=row.eval_split, planned=True)
