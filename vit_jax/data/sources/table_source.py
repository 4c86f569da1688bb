"""Splits of a dataset whose labels are columns of a table.

Class folders, tables, Parquet, the Hugging Face hub and WebDataset all end
here: `build` takes a function that reads an image, the keys and the label
columns, and returns splits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import os
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

_Rows = Integer[np.ndarray, '_']


@dataclasses.dataclass(frozen=True, eq=False)
class TableSource(protocol.Source):
  """One split of a table.

  `rows` index the images, `numbers` the labels and the hashes of groups.
  """
  read: Callable[[int], bytes]
  read_mask: Callable[[int], bytes] | None
  keys: Any
  parsed: labels_lib.ParsedLabels
  rows: UInt[np.ndarray, 'examples']
  numbers: UInt[np.ndarray, 'examples']
  groups: UInt64[np.ndarray, 'labels'] | None = None

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, index: int) -> dict[str, Any]:
    row = int(self.rows[index])
    example = {'image': self.read(row), 'label': self.label(index)}
    if self.read_mask is not None:
      example[protocol.SEGMENTATION] = self.read_mask(row)
    return example

  def label(self, index: int) -> Any:
    return self.parsed[int(self.numbers[index])]

  def labels_of(self, indices: Integer[np.ndarray, '_']) -> Iterable[Any]:
    return map(self.parsed.__getitem__, self.numbers[indices].tolist())

  def groups_of(
      self, indices: Integer[np.ndarray, '_'],
  ) -> UInt64[np.ndarray, '_'] | None:
    return None if self.groups is None else self.groups[self.numbers[indices]]

  def key(self, index: int) -> str:
    return str(self.keys[int(self.rows[index])])


def build(
    read: Callable[[int], bytes], keys: Any,
    table: Mapping[str, columns_lib.Column], config: columns_lib.LabelConfig, *,
    where: str, splits: columns_lib.Column | None = None,
    read_mask: Callable[[int], bytes] | None = None,
    class_names: Sequence[str] | None = None, are_indices: bool = False,
    row_numbers: _Rows | None = None,
    group_of: Callable[[int], str] | None = None,
    order_by: Callable[[int], str] | None = None, labels_from: str = '',
    unlabelled: Sequence[str] = (), notes: Sequence[str] = (),
) -> protocol.DatasetSplits:
  """Parses labels and assigns rows to splits.

  Args:
    read: returns the content of a row's image file.
    keys: name of each row's image, the same on every machine.
    table: label columns by name, and one called `config.group`, if that is set.
    config: kind of labels and their columns; without columns, the images have
      no labels.
    where: file names, for messages.
    splits: split of each row; default: a part is held out by a hash.
    read_mask: returns the content of a row's mask, if there are masks.
    class_names: declared by the file.
    are_indices: see `labels.parse`.
    row_numbers: see `labels.parse`.
    group_of: without `config.group`, returns a text by which rows stay together
      in a hold-out; default: the keys.
    order_by: rows of a split are ordered by the hash of their group, if there
      are groups, and the hash of the text that this returns for a row; default:
      the keys.
    labels_from: origin of the labels; default: the names of the columns.
    unlabelled: further splits, whose images have no labels.
    notes: added to the description.

  Raises:
    protocol.NoLabels: if a classifier could learn nothing from the labels.
    ValueError: if there are no training rows, or invalid labels.
  """
  columns = {name: table[name] for name in config.table.labels}
  rows_of = _rows_of_splits(splits, len(keys), config, where)
  missing = _unlabelled_splits(columns, rows_of, where) if columns else []
  unlabelled = sorted({*unlabelled} - {*rows_of} | {*missing})
  rows_of = {name: of for name, of in rows_of.items() if name not in missing}
  kept = np.sort(np.concatenate([*rows_of.values()]))
  parsed = labels_lib.parse(
      columns, kept, config, where=where, class_names=class_names,
      are_indices=are_indices, row_numbers=row_numbers) if columns else (
          labels_lib.none(len(kept)))
  numbers_of = {name: np.searchsorted(kept, of) for name, of in rows_of.items()}
  hashes = lambda text_of: split_strings.stable_hashes(
      map(text_of, kept.tolist()), len(kept))
  key_of = lambda row: str(keys[row])
  order, groups = hashes(order_by or key_of), None
  if config.group:
    groups = groups_lib.hashes(
        table[config.group], group=config.group, where=where)[kept]
  by_hash = len(numbers_of) == 1 and bool(config.holdout)
  few: list[str] = []
  if by_hash:
    numbers_of, few = _hold_out(
        groups if groups is not None else
        hashes(group_of or key_of) if group_of or order_by else order,
        parsed, config.holdout, unlabelled)
  elif config.holdout not in (0, columns_lib.HOLDOUT):
    raise ValueError(
        f'data.holdout is {config.holdout}, but {where} has splits '
        f'({", ".join(numbers_of)}). Remove it.')
  # In hash order, so that 'train[:50%]' is a sample; groups are ordered first.
  rank = np.argsort(np.lexsort(
      (order,) if groups is None else (order, groups)))
  chosen = {name: of[np.argsort(rank[of])] for name, of in sorted(
      numbers_of.items(), key=lambda pair: (pair[0] != 'train', pair[0]))}
  _check_trained(parsed, chosen, where)
  if groups is not None:
    of_split = {split: groups[of] for split, of in chosen.items()}
    few = ['groups: ' + ', '.join(
        f'{split} {len(np.unique(of)):,}' for split, of in of_split.items()),
           *few, *groups_lib.check_undivided(
               of_split, lambda split, i: str(table[config.group][int(
                   kept[chosen[split][i]])]),
               where=where, divided=config.divided_groups)]
  eval_split = split_strings.choose_eval_split(list(chosen))
  labels_from = labels_from or (
      f'column{"s" * (len(columns) > 1)} {files.shorten(columns, 4)}')
  content = (f'{parsed.describe()} ({labels_from})' if columns else
             'masks' if read_mask else 'no labels')
  return protocol.DatasetSplits(
      {name: TableSource(
          read, read_mask, keys, parsed, columns_lib.compact(kept[of]),
          columns_lib.compact(of), groups) for name, of in chosen.items()},
      num_classes=parsed.num_classes, class_names=parsed.class_names,
      multi_label=parsed.kind == 'multi', eval_split=eval_split,
      targets=parsed.targets, held_out=by_hash, unlabelled=tuple(unlabelled),
      no_labels='' if columns else protocol.NO_IMAGE_LABELS if read_mask else (
          columns_lib.IGNORED),
      description='; '.join([
          f'{where}: {content}', _describe_splits(chosen, eval_split, by_hash),
          *map(protocol.describe_unlabelled, unlabelled), *notes, *few]))


def _describe_splits(
    chosen: Mapping[str, _Rows], eval_split: str, by_hash: bool) -> str:
  """Returns 'train 90, test 10, chosen by a hash'."""
  return (', '.join(f'{name} {len(of):,}' for name, of in chosen.items())
          + ', chosen by a hash' * by_hash
          + f', evaluated on {eval_split}' * (
              eval_split not in ('test', 'train')))


def _unlabelled_splits(
    columns: Mapping[str, columns_lib.Column], rows_of: Mapping[str, _Rows],
    where: str,
) -> list[str]:
  """Returns the splits without labels, or raises `NoLabels` for `train`."""
  filled = np.any([*map(columns_lib.are_filled, columns.values())], axis=0)
  missing = [split for split, rows in rows_of.items()
             if not filled[rows].any()]
  if 'train' in missing:
    raise protocol.NoLabels(
        f'The training images of {where} have no labels: each cell of '
        f'{files.shorten(columns, 8)} is empty.')
  return missing


def parse_splits(
    column: columns_lib.Column, name: str, where: str) -> columns_lib.Column:
  """Returns the split of each row; raises ValueError if one is missing."""
  found = columns_lib.apply(column, lambda cell: split_strings.split_name(
      columns_lib.clean(cell)), object)
  empty = np.flatnonzero(found == '')
  if len(empty):
    raise ValueError(
        f'{len(empty):,} of {len(found):,} rows of {where} have no split in '
        f'column {name!r} (the first: row {empty[0] + 1}). Fill them in, or '
        'remove the column: splits are then made by a hash.')
  return columns_lib.texts(found)


def splits_of_files(
    paths: Sequence[os.PathLike], counts: Sequence[int], *, where: str,
) -> columns_lib.Column | None:
  """Returns the split of each row of files; None if they do not differ.

  Raises:
    ValueError: if only some names contain a split.
  """
  found = [*map(split_strings.find_in_file, paths)]
  if len({*found}) == 1:
    return None
  if None in found:
    named = ', '.join(sorted(filter(None, {*found})))
    raise ValueError(
        f'Some files of {where} are named after a split ({named}), but '
        f'{paths[found.index(None)]} is not. Rename it, or name the files to '
        "use: --config.data.source='FOLDER/train-*'")
  return columns_lib.repeat([str(split) for split in found], counts)


def _rows_of_splits(
    splits: columns_lib.Column | None, count: int,
    config: columns_lib.LabelConfig, where: str,
) -> dict[str, _Rows]:
  """Returns the rows of each split, of which one must be `train`.

  Without a hold-out, a single split is used as a whole, such as `val.csv`.
  """
  names, codes = (['train'], None) if splits is None else (
      columns_lib.encode(splits))
  if codes is None or (len(names) == 1 and not config.holdout):
    return {'train': np.arange(count)}
  if 'train' not in names:
    raise ValueError(
        f'{where} has no training split; its splits: '
        f'{files.shorten(sorted(names), 8)}. One must be called train.')
  return {name: np.flatnonzero(codes == i) for i, name in enumerate(names)}


def _hold_out(
    groups: UInt64[np.ndarray, 'rows'], parsed: labels_lib.ParsedLabels,
    fraction: float, unlabelled: Sequence[str],
) -> tuple[dict[str, _Rows], list[str]]:
  """Holds out a fraction of the groups, given by their hashes; and notes.

  The part is called `test` unless that is an unlabelled split.
  """
  classes, names = None, parsed.class_names or ()
  if parsed.kind == 'single':
    classes = np.asarray(parsed.values)
  held = holdout.hold_out(groups, classes, names=names, fraction=fraction)
  name = next((name for name in ('test', 'val') if name not in unlabelled),
              'held_out')
  return {'train': np.flatnonzero(~held), name: np.flatnonzero(held)}, (
      [] if classes is None else holdout.describe_few(classes, held, names))


def _check_trained(
    parsed: labels_lib.ParsedLabels,
    numbers: Mapping[str, _Rows], where: str) -> None:
  """Raises if a class occurs in evaluation splits only."""
  if parsed.kind != 'single':
    return
  labels = np.asarray(parsed.values)
  missing = np.setdiff1d(labels, labels[numbers['train']])
  if missing.size:
    names = [(parsed.class_names or ())[i] for i in missing]
    raise ValueError(
        f'{len(missing)} of the classes of {where} have no image in train, '
        f'only in other splits: {files.shorten(names, 8)}. Add images to '
        'train, or remove these. Upper and lower case matter.')
