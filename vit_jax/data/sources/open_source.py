"""Opens a dataset by name.

  'digits', 'shapes'   builtin: no files
  a path               class folders, tables, Parquet, tars, TFDS folders
  'hf://datasets/...'  the Hugging Face hub
  'vtab/dtd'           vtab: a task of VTAB-1k
  'module:function'    the user's own: a function of the section `data`
  any other name       tfds: prepared by TensorFlow Datasets

Each kind of source is imported when one is opened; `registry` lists them.
"""

from collections.abc import Sequence
import dataclasses
import functools
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
    return validation.add(trained, open_splits(
        dataclasses.replace(config, target=trained.kind),
        source=config.val_source, whole=True), config)
  labels = columns_lib.LabelConfig(
      config.target, config.table, config.holdout)
  if source is None and labels != columns_lib.AUTO and not files.is_path(name):
    raise ValueError(
        'data.target, data.table and data.holdout describe your own files, '
        f'but data.source is {name!r}, which declares its labels and splits. '
        'Remove them.')
  opened = _open(name, config, dataclasses.replace(
      labels, group=config.group, divided_groups=config.divided_groups,
      holdout=0.0 if whole else config.holdout,
      # Data that are only evaluated on may lack classes.
      skip_empty=config.unreadable == 'skip' or (
          whole and source is not None)))
  if source is None:
    groups_lib.check_present(opened.splits, config.group, name=name)
  return opened


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

  Raises:
    ValueError: if it does not exist, or its layout is unknown or ambiguous.
  """
  if name.startswith('hf://'):
    return registry.load(registry.FILES['hub'])(name, config)
  paths = files.expand(name)
  if len(paths) == 1 and paths[0].is_dir():
    return _open_folder(paths[0], config)
  return _open_files(paths, config, where=name)


def _open_files(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  found = {path.suffix.lower() for path in paths}
  if found == {'.parquet'}:
    return registry.load(registry.FILES['Parquet files'])(
        paths, config, where=where)
  if found == {'.tar'}:
    return registry.load(registry.FILES['tar files'])(
        paths, config, where=where)
  if found <= files.TABLE_SUFFIXES:
    return registry.load(registry.FILES['tables'])(paths, config)
  if found <= files.IMAGE_SUFFIXES:
    return registry.load(registry.FILES['images'])(
        paths, config.without_labels(
            f'The images {where} have no labels. Give their folder, or a '
            'table.'), where=where)
  raise ValueError(
      f'{where} (data.source) has files of type {", ".join(sorted(found))}. '
      'Expected a folder, or files of one type: .csv, .tsv or .jsonl (tables '
      'of images), .parquet, .tar (WebDataset, not compressed), or images '
      'without labels. Unpack archives first.')


def _open_folder(
    root: epath.Path, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  from vit_jax.data.sources import class_folders
  from vit_jax.data.sources import table_files
  from vit_jax.data.sources import tfds_folders
  if tfds_folders.is_prepared(root):
    return registry.load(registry.FILES['TFDS folder'])(root)
  found = {kind: paths for kind, paths in (
      ('Parquet files', files.files_below(root, '.parquet')),
      ('tar files', files.files_below(root, '.tar')),
      ('tables', table_files.find(root))) if paths}
  if not found:
    return class_folders.open_folder(root, config)
  paths = next(iter(found.values()))
  if len(found) > 1:
    layouts = ' and '.join(
        f'{kind} ({files.shorten(p.name for p in of)})'
        for kind, of in found.items())
    raise ValueError(
        f'{root} (data.source) holds {layouts}. Name the files to use: '
        f'{paths[0]}')
  if not config.table.labels:
    config = dataclasses.replace(
        config, class_folders=functools.partial(class_folders.find, root))
  return _open_files(paths, config, where=os.fspath(root))


def is_user_data(name: str) -> bool:
  """Whether a name denotes data that the user collected or prepared."""
  return not _target(name) and (
      files.is_path(name) or not known_datasets.is_known(name))


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
