"""Roles of a table's columns: image, label, split, group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import os
import re
from typing import Any, Literal

from etils import epath

from vit_jax import schema
from vit_jax.data.sources import files
from vit_jax.data.sources import label_rules
from vit_jax.data.sources import protocol

_IMAGE_NAMES = (
    'path', 'file', 'filename', 'file_name', 'filepath', 'filepaths',
    'file_path', 'image', 'image_path', 'image_file', 'img', 'img_path',
    'images', 'image_id')
_LABEL_NAMES = (
    'label', 'labels', 'class', 'class_name', 'target', 'targets', 'category',
    'categories', 'cls', 'fine_label')
_SPLIT_NAMES = ('split', 'subset', 'set', 'partition', 'data_set')
_ID_NAMES = ('key', 'id')
MAX_COLUMNS = 2**16
HOLDOUT = 0.1  # Default of `data.holdout`.
IGNORED = 'data.target is none: labels are ignored.'


@dataclasses.dataclass(frozen=True)
class TableConfig:
  """The config section `data.table`; needed where column names are unusual.

  Attributes:
    path: column of image paths or, in Parquet, of image bytes.
    label: label column; several, separated by commas, are one class or one
      target each. In a WebDataset tar, a key of the JSON member.
    split: column with the split of each row.
    separator: separator between several labels in a cell.
    folder: folder that relative image paths start from, relative to the table.
    suffix: appended to each image path, such as '.jpg'.
  """
  path: str | None = None
  label: str | tuple[str, ...] | None = None
  split: str | None = None
  separator: str | None = None
  folder: str = ''
  suffix: str = ''

  @property
  def labels(self) -> tuple[str, ...]:
    """Names of the label columns; () if not configured."""
    if isinstance(self.label, str):
      return tuple(name.strip() for name in self.label.split(','))
    return self.label or ()


@dataclasses.dataclass(frozen=True)
class LabelConfig:
  """Interpretation of a user's files: `data.target`, `table`, `group`, ...

  With a `holdout` of 0, data without splits are all `train`. With `skip_empty`,
  class folders of `train` may have no images.

  With `class_folders` beside a table, only a usual name makes a column a label;
  they are listed only when needed. `no_labels` says why no label was found.
  """
  target: label_rules.Kind = 'auto'
  table: TableConfig = TableConfig()
  holdout: float = HOLDOUT
  group: str = ''
  divided_groups: Literal['error', 'allow'] = 'error'
  class_folders: Callable[[], Sequence[str]] = tuple
  no_labels: str = ''
  skip_empty: bool = False

  def without_labels(self, reason: str) -> 'LabelConfig':
    """Returns a copy for images whose labels are missing or ignored."""
    return dataclasses.replace(self.with_columns(label=()), no_labels=reason)

  def with_columns(self, **roles: Any) -> 'LabelConfig':
    """Returns a copy with other columns in `table`."""
    return dataclasses.replace(
        self, table=dataclasses.replace(self.table, **roles))


AUTO = LabelConfig()


def check_count(count: int, *, where: str) -> None:
  """Raises a ValueError if a table has too many columns."""
  if count > MAX_COLUMNS:
    raise ValueError(
        f'{where} has {count:,} columns, but at most {MAX_COLUMNS:,} are '
        'supported. For more classes, list the classes of each image in one '
        'column.')


def choose_columns(
    table: Mapping[str, label_rules.Column], config: LabelConfig, *,
    where: str, has_paths: bool = False,
) -> LabelConfig:
  """Returns the config with the image, label and split column of a table.

  Roles that are not configured are inferred from names and values; there may be
  no labels. With `has_paths`, a column must hold the paths of image files.

  Raises:
    ValueError: if a configured column is missing, or a role is ambiguous.
  """
  names, given = list(table), config.table
  for name in (given.path, given.split, config.group, *given.labels):
    if name:
      schema.check_name(name, names, what=f'column of {where}')
  path = given.path
  if path is None and has_paths:
    path = image_column(names) or _column_of_paths(table, where)
  split = given.split or _find(names, _SPLIT_NAMES)
  # Columns called `id` are never labels, and are groups only if configured.
  ids = config.group, _find(names, _ID_NAMES)
  others = [n for n in names if n not in (path, split, *ids)]
  config = config.with_columns(path=path, split=split)
  if config.target == 'none':
    return config.without_labels(IGNORED)
  if config.group and (config.group in given.labels or (not given.labels and (
      config.group == _find(names, _LABEL_NAMES)))):
    raise ValueError(
        f'data.group is {config.group!r}, the column of the labels of {where}, '
        'so that each class would be one group. Name the column of the groups, '
        'or the label column: --config.data.table.label=COLUMN.')
  try:
    return config.with_columns(label=given.labels or _label_columns(
        table, others, config, where))
  except protocol.NoLabels as error:
    return config.without_labels(str(error))


def image_column(names: Iterable[str]) -> str | None:
  """Returns the column with a usual name for images."""
  return _find(list(names), _IMAGE_NAMES)


def _find(names: Sequence[str], known: Sequence[str]) -> str | None:
  plain = {re.sub(r'[ -]', '_', name.strip().lower()): name for name in names}
  return next((plain[name] for name in known if name in plain), None)


def _column_of_paths(
    table: Mapping[str, label_rules.Column], where: str) -> str:
  found = [name for name, values in table.items()
           if values and all(map(files.is_image, values[:20]))]
  if len(found) != 1:
    raise ValueError(
        f'Cannot tell which column of {where} holds the images. Its columns: '
        f'{", ".join(table)}; expected one of {", ".join(_IMAGE_NAMES[:6])}. '
        'Set --config.data.table.path=COLUMN.' + (
            files.advise_unpacking(epath.Path(where).parent)
            if os.path.isfile(where) else ''))
  return found[0]


def _label_columns(
    table: Mapping[str, label_rules.Column], others: Sequence[str],
    config: LabelConfig, where: str,
) -> tuple[str, ...]:
  """Returns one column with a usual name, or all remaining ones."""
  named = _find(others, _LABEL_NAMES)
  if named is not None:
    return (named,)
  if folders := config.class_folders():
    raise ValueError(
        f'{where} lies beside class folders '
        f'({files.shorten(folders)}), and none of its columns is '
        f'named like a label: {", ".join(table)}. To use it, name the label '
        'column: --config.data.table.label=COLUMN. To use the class folders, '
        'move the file elsewhere.')
  columns = [table[name] for name in others]
  if columns and (
      len(columns) == 1
      or label_rules.flags(columns, config.target) is not None
      or (config.target == 'regression' and not any(
          label_rules.numbers(column) is None for column in columns))):
    return tuple(others)
  found = (f'Candidates: {", ".join(others)}' if others
           else 'The image column is the only column')
  raise protocol.NoLabels(
      f'Cannot tell which column of {where} holds the labels. {found}; '
      f'expected one of {", ".join(_LABEL_NAMES[:7])}. Set '
      '--config.data.table.label=COLUMN, or several separated by commas.')
