"""Opens a dataset by name.

  'digits', 'shapes'   builtin: no files
  a path               paths: class folders, tables, Parquet, tars, TFDS folders
  'hf://datasets/...'  hugging_face
  'vtab/dtd'           vtab: a task of VTAB-1k
  any other name       tfds: prepared by TensorFlow Datasets
"""

import dataclasses
import os
from typing import Any

from etils import epath

from vit_jax import atomic_files
from vit_jax.data import config as config_lib
from vit_jax.data import known_datasets
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol

_VTAB = 'vtab/'
_BUILTIN = ('digits', 'shapes')


def open_splits(
    config: config_lib.DataConfig, *, source: str | None = None,
) -> protocol.DatasetSplits:
  """Opens all splits of the section's source or another; some may be empty.

  Raises:
    ValueError: if there is no such dataset, with the remedy, or if labels are
      configured for a dataset that declares its own.
  """
  name = source or config.source
  labels = columns_lib.LabelConfig(
      config.target, config.table, config.holdout)
  # Runs of earlier versions have the holdout 'hash', whatever their source.
  configured = labels not in (
      columns_lib.AUTO, columns_lib.LabelConfig(holdout='hash'))
  if source is None and configured and not is_path(name):
    raise ValueError(
        'data.target, data.table and data.holdout describe your own files, '
        f'but data.source is {name!r}, which declares its labels and splits. '
        'Remove them.')
  # Each kind of source is imported when one is opened.
  if name in _BUILTIN:
    from vit_jax.data.sources import builtin
    return (builtin.open_digits() if name == 'digits' else
            builtin.open_shapes(config.shapes, config.size))
  if name.startswith(_VTAB):
    from vit_jax.data import vtab
    return vtab.open_task(name, config.data_dir)
  if is_path(name):
    from vit_jax.data.sources import paths
    return paths.open_path(name, labels)
  from vit_jax.data.sources import tfds
  return tfds.open_tfds(name, config.data_dir)


def is_path(name: str) -> bool:
  """Whether a name denotes the user's files, not a known dataset."""
  suffix = os.path.splitext(name)[1].lower()
  return (
      name.startswith(('/', './', '../', '~')) or name == '.'
      or atomic_files.is_remote(name)
      or suffix in {'.parquet', '.tar', *files.TABLE_SUFFIXES}
      or (not known_datasets.is_known(name) and epath.Path(name).is_dir()))


def is_user_data(name: str) -> bool:
  """Whether a name denotes data that the user collected or prepared."""
  return name not in _BUILTIN and not name.startswith(_VTAB) and (
      is_path(name) or not known_datasets.is_known(name))


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
    row = vtab.planned(name)
  else:
    row = known_datasets.facts(name)
  if not row.num_examples or row.num_classes is None:
    return None
  return protocol.DatasetSplits(
      {split: PlannedSplit(name, count)
       for split, count in row.num_examples.items()},
      row.num_classes, multi_label=bool(row.multi_label),
      eval_split=row.eval_split, planned=True)
