"""Opens a data set by its name, whichever kind it is of.

  embedded     'digits' and 'shapes': there without any file
  layouts      a path: folders, tables, Parquet, tar, what TFDS prepared
  tfds_files   a name of what TensorFlow Datasets prepared
  vtab         'vtab/dtd': a task of VTAB-1k, made of one of these

`splits` then selects examples of what was opened.
"""

import dataclasses
from typing import Any

from etils import epath

from vit_jax import schema
from vit_jax.data import known_datasets
from vit_jax.data import vtab
from vit_jax.data.sources import builtin
from vit_jax.data.sources import layouts
from vit_jax.data.sources import protocol
from vit_jax.data.sources import rows
from vit_jax.data.sources import shapes
from vit_jax.data.sources import tfds


def open_source(
    name: str, *, data_dir: str, shapes_config: shapes.ShapesConfig,
    size: tuple[int, int], understood: rows.Understood = rows.AUTO,
) -> protocol.Opened:
  """Opens a data set by the name that `data.source` gives.

  Args:
    name: 'digits', 'shapes', a path, 'vtab/' and a task's name, or a TFDS
      name. A path is what begins with '/', './', '../' or '~', has '://' in
      it, ends as a file of data does, or is a folder that exists.
    data_dir: TFDS directory.
    shapes_config: of 'shapes'.
    size: height and width that 'shapes' are drawn in by default.
    understood: how the labels of a path are meant.

  Raises:
    ValueError: if there is no such data set, with what to do about it.
  """
  if name == 'digits':
    return builtin.open_digits()
  if name == 'shapes':
    return builtin.open_shapes(shapes_config, size)
  if name.startswith(vtab.PREFIX):
    return vtab.open_task(name, data_dir)
  if is_path(name):
    return layouts.open_path(name, understood)
  return tfds.open_tfds(name, data_dir)


def is_path(name: str) -> bool:
  """Whether a name is of a person's own files."""
  return layouts.is_path(name) or _is_folder_here(name)


def check_understood(name: str, understood: rows.Understood) -> None:
  """Raises where a data set says itself what its labels are."""
  if understood != rows.AUTO and not is_path(name):
    raise ValueError(
        'data.target and data.table say how the labels of your own files are '
        f'meant, but data.source is {name!r}, which says so itself. Leave them '
        'out.')


def _is_folder_here(name: str) -> bool:
  known = name.split(':')[0].split('/')[0] in known_datasets.DATASETS
  return not known and epath.Path(name).is_dir()


@dataclasses.dataclass(frozen=True)
class Expected:
  """A split that is known of, but not at hand: a length to plan with."""
  name: str
  num_examples: int

  def __len__(self) -> int:
    return self.num_examples

  def __getitem__(self, index: int) -> dict[str, Any]:
    raise ValueError(f'{self.name} was only planned with, not opened.')

  def label(self, index: int) -> Any:
    return self[index]

  def key(self, index: int) -> str:
    return str(index)


class UnknownSizes(ValueError):
  """The table of data sets does not hold what a plan needs."""


def expect_source(name: str) -> protocol.Opened:
  """Returns what the table says of a data set, without looking for its files.

  Raises:
    UnknownSizes: if the table does not hold its sizes.
  """
  if name.startswith(vtab.PREFIX):
    counts, num_classes = vtab.sizes(name)
    return protocol.Opened(
        {split: Expected(name, count) for split, count in counts.items()},
        num_classes)
  row = known_datasets.facts(name)
  if not row.num_examples or row.num_classes is None:
    known = [n for n, r in known_datasets.DATASETS.items() if r.num_examples]
    raise UnknownSizes(
        f'The sizes of {name!r} are not in the table of data sets '
        f'(vit_jax/data/known_datasets.py).{schema.nearest(name, known)} Known: '
        f'{", ".join(known)}.')
  return protocol.Opened(
      {split: Expected(name, count)
       for split, count in row.num_examples.items()},
      row.num_classes, multi_label=bool(row.multi_label),
      eval_split=row.eval_split)
