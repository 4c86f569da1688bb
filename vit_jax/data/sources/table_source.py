"""Splits of a dataset whose labels are columns of a table.

Class folders, tables, Parquet, the Hugging Face hub and WebDataset all end
here: `build` takes a function that reads an image, the keys and the columns,
and returns splits.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

from jaxtyping import Integer, UInt, UInt64
import numpy as np

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import labels as labels_lib
from vit_jax.data.sources import protocol
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import holdout
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError

_Rows = Integer[np.ndarray, '_']


@dataclasses.dataclass(frozen=True, eq=False)
class TableSource(protocol.Source):
  """One split: `rows` index `keys`, `parsed` and `groups`; see `Images`."""
  read: Callable[[int], bytes]
  read_mask: Callable[[int], bytes] | None
  keys: Any
  parsed: labels_lib.Labels
  groups: UInt64[np.ndarray, 'rows'] | None
  rows: UInt[np.ndarray, 'examples']

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, index: int) -> dict[str, Any]:
    row = int(self.rows[index])
    example = {'image': self.read(row), 'label': self.parsed[row]}
    if self.read_mask is not None:
      example[protocol.SEGMENTATION] = self.read_mask(row)
    return example

  def label(self, index: int) -> Any:
    return self.parsed[int(self.rows[index])]

  def groups_of(
      self, indices: Integer[np.ndarray, '_'],
  ) -> UInt64[np.ndarray, '_'] | None:
    return None if self.groups is None else self.groups[self.rows[indices]]

  def key(self, index: int) -> str:
    return str(self.keys[int(self.rows[index])])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Images:
  """Rows of a table with an image each, as an opener finds them.

  Attributes:
    where: file names, for messages.
    read: returns the content of a row's image file.
    keys: name of each row's image, the same on every machine.
    labels: label columns by name; without any, the images have no labels.
    splits: split of each row; default: a part is held out by a hash.
    groups: group of each row (`data.group`).
    rows: rows that are used, in increasing order; default: all.
    read_mask: returns the content of a row's mask, if there are masks.
    class_names: declared by the file.
    group_of: without `groups`, returns a text by which rows stay together in a
      hold-out; default: the keys.
    order_by: rows of a split are ordered by the hash of their group, if there
      are groups, and the hash of the text that this returns for a row; default:
      the keys.
    unlabelled: further splits, whose images have no labels.
    without_images: see `protocol.Metadata`.
    notes: added to the description.
  """
  where: str
  read: Callable[[int], bytes]
  keys: Any
  labels: Mapping[str, columns_lib.Column] = dataclasses.field(
      default_factory=dict)
  splits: columns_lib.Column | None = None
  groups: columns_lib.Column | None = None
  rows: _Rows | None = None
  read_mask: Callable[[int], bytes] | None = None
  class_names: Sequence[str] | None = None
  group_of: Callable[[int], str] | None = None
  order_by: Callable[[int], str] | None = None
  unlabelled: Sequence[str] = ()
  without_images: tuple[str, ...] = ()
  notes: Sequence[str] = ()

  @classmethod
  def of_files(
      cls, paths: Sequence[str], config: columns_lib.LabelConfig, *, where: str,
      root: str, **more: Any,
  ) -> 'Images':
    """Returns the images of files, whose paths are relative to the root."""
    keys = columns_lib.texts(paths)
    return cls(
        where=where, read=functools.partial(files.read, root, keys), keys=keys,
        groups=groups_lib.find_in_paths(paths, config.group, where=where),
        **more)

  def key(self, row: int) -> str:
    return str(self.keys[row])


def build(
    images: Images, config: columns_lib.LabelConfig) -> protocol.DatasetSplits:
  """Parses labels and assigns rows to splits.

  Raises:
    protocol.NoLabels: if a classifier could learn nothing from the labels.
    UserError: if there are no training rows, or invalid labels.
  """
  rows_of = _rows_of_splits(images, config)
  missing = _unlabelled_splits(images, rows_of)
  unlabelled = sorted({*images.unlabelled} - {*rows_of} | {*missing})
  rows_of = {name: of for name, of in rows_of.items() if name not in missing}
  parsed = labels_lib.parse(
      images.labels, np.sort(np.concatenate([*rows_of.values()])), config,
      where=images.where, class_names=images.class_names)
  groups = None if images.groups is None else groups_lib.hashes(
      images.groups, group=config.group, where=images.where)
  rows_of, held_out, few = _divide(
      images, config, rows_of, parsed, groups, unlabelled)
  splits = {name: TableSource(
      images.read, images.read_mask, images.keys, parsed, groups,
      columns_lib.compact(rows)) for name, rows in rows_of.items()}
  divided = groups_lib.check_undivided(
      splits, where=images.where, divided=config.divided_groups)
  eval_split = split_strings.choose_eval_split([*rows_of])
  return protocol.DatasetSplits(
      splits,
      num_classes=len(parsed.names) or 1,
      class_names=parsed.names if parsed.kind in ('single', 'multi') else None,
      multi_label=parsed.kind == 'multi', eval_split=eval_split,
      targets=parsed.names if parsed.kind == 'regression' else (),
      held_out=held_out, unlabelled=tuple(unlabelled),
      without_images=images.without_images,
      no_labels='' if images.labels else protocol.NO_IMAGE_LABELS
      if images.read_mask else columns_lib.IGNORED,
      description='; '.join(filter(None, [
          f'{images.where}: ' + (
              'masks' if images.read_mask else parsed.describe())
          + f' ({files.shorten(images.labels, 4)})' * bool(images.labels),
          ', '.join(f'{name} {len(of):,}' for name, of in rows_of.items())
          + ', chosen by a hash' * held_out + f', evaluated on {eval_split}' * (
              eval_split not in ('test', 'train')),
          *map(protocol.describe_unlabelled, unlabelled), *images.notes,
          protocol.describe_without_images(images.without_images),
          groups_lib.describe(splits), *few, *divided])))


def _divide(
    images: Images, config: columns_lib.LabelConfig,
    rows_of: Mapping[str, _Rows], parsed: labels_lib.Labels,
    groups: UInt64[np.ndarray, 'rows'] | None, unlabelled: Sequence[str],
) -> tuple[dict[str, _Rows], bool, list[str]]:
  """Returns the rows of splits in order, whether one is held out, and notes."""
  @functools.cache
  def hashes(text_of: Callable[[int], str]) -> UInt64[np.ndarray, 'rows']:
    count = len(images.keys)
    return split_strings.stable_hashes(map(text_of, range(count)), count)

  notes: list[str] = []
  if held_out := len(rows_of) == 1 and bool(config.holdout):
    rows_of, notes = _hold_out(
        rows_of['train'], hashes(images.group_of or images.key)
        if groups is None else groups, parsed, config.holdout, unlabelled)
  elif config.holdout not in (0, columns_lib.HOLDOUT):
    raise UserError(
        f'data.holdout is {config.holdout}, but {images.where} has splits '
        f'({", ".join(rows_of)}). Remove it.')
  # In hash order, so that 'train[:50%]' is a sample; groups are ordered first.
  by = [hashes(images.order_by or images.key),
        *([] if groups is None else [groups])]
  rows_of = {
      name: rows_of[name][np.lexsort([key[rows_of[name]] for key in by])]
      for name in sorted(rows_of, key=lambda name: (name != 'train', name))}
  _check_trained(parsed, rows_of, images.where)
  return rows_of, held_out, notes


def _unlabelled_splits(
    images: Images, rows_of: Mapping[str, _Rows]) -> list[str]:
  """Returns the splits without labels, or raises `NoLabels` for `train`."""
  if not images.labels:
    return []
  # Among declared classes, -1 is no label, as in TFDS and `datasets`.
  empty = (None,) if images.class_names is None else (None, -1)
  filled = np.any([columns_lib.are_filled(column, empty=empty)
                   for column in images.labels.values()], axis=0)
  missing = [split for split, rows in rows_of.items() if not filled[rows].any()]
  if 'train' in missing:
    raise protocol.NoLabels(
        f'The training images of {images.where} have no labels: each cell of '
        f'{files.shorten(images.labels, 8)} is empty.')
  return missing


def _rows_of_splits(
    images: Images, config: columns_lib.LabelConfig) -> dict[str, _Rows]:
  """Returns the rows of each split, of which one must be `train`.

  Without a hold-out, a single split is used as a whole, such as `val.csv`.

  Raises:
    UserError: if there is no `train`, or a row has no split.
  """
  rows = np.arange(len(images.keys)) if images.rows is None else images.rows
  if images.splits is None:
    return {'train': rows}
  parse = lambda cell: split_strings.split_name(columns_lib.clean(cell))
  found = columns_lib.apply(images.splits, parse, object)[rows]
  if len(empty := rows[found == '']):
    raise UserError(
        f'{len(empty):,} of {len(rows):,} rows of {images.where} have no split '
        f'(the first: row {empty[0] + 1}). Fill them in, or '
        'remove the column: splits are then made by a hash.')
  names = [*dict.fromkeys(found)]
  if len(names) == 1 and not config.holdout:
    return {'train': rows}
  if 'train' not in names:
    raise UserError(
        f'{images.where} has no training split; its splits: '
        f'{files.shorten(sorted(names), 8)}. One must be called train.')
  return {name: rows[found == name] for name in names}


def _hold_out(
    rows: _Rows, groups: UInt64[np.ndarray, 'rows'], parsed: labels_lib.Labels,
    fraction: float, unlabelled: Sequence[str],
) -> tuple[dict[str, _Rows], list[str]]:
  """Holds out a fraction of the groups, given by their hashes; and notes.

  The part is called `test` unless that is an unlabelled split.
  """
  classes = parsed.values[rows] if parsed.kind == 'single' else None
  held = holdout.hold_out(
      groups[rows], classes, names=parsed.names, fraction=fraction)
  name = next((name for name in ('test', 'val') if name not in unlabelled),
              'held_out')
  return {'train': rows[~held], name: rows[held]}, (
      [] if classes is None else
      holdout.describe_few(classes, held, parsed.names))


def _check_trained(
    parsed: labels_lib.Labels, rows_of: Mapping[str, _Rows], where: str,
) -> None:
  """Raises if a class occurs in evaluation splits only."""
  if parsed.kind != 'single':
    return
  missing = np.setdiff1d(
      parsed.values[np.concatenate([*rows_of.values()])],
      parsed.values[rows_of['train']])
  if len(missing):
    raise UserError(
        f'{len(missing)} of the classes of {where} have no image in train, '
        'only in other splits: '
        f'{files.shorten((parsed.names[i] for i in missing), 8)}. Add images '
        'to train, or remove these. Upper and lower case matter.')
