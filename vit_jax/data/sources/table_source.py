"""Splits of a dataset whose labels are columns of a table.

Class folders, CSV, JSON lines, Parquet, the Hugging Face hub and WebDataset all
end here: `build` takes functions that read the images, and the label columns,
and returns splits.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

from jaxtyping import Integer, UInt, UInt64
import numpy as np

from vit_jax.data import cells as cells_lib
from vit_jax.data import links
from vit_jax.data import shared
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import label_rules
from vit_jax.data.sources import protocol
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import holdout
from vit_jax.data.splits import split_strings

Table = Mapping[str, Sequence[Any]]  # Columns by name.
_Labels = Mapping[str, cells_lib.Column]
_Rows = Integer[np.ndarray, '_']


@dataclasses.dataclass(frozen=True, eq=False)
class TableSource(protocol.Source):
  """One split of a table.

  `rows` index the images, `numbers` the labels and the hashes of groups.
  """
  read: Callable[[int], bytes]
  read_mask: Callable[[int], bytes] | None
  key_of: Callable[[int], str]
  parsed: label_rules.ParsedLabels
  rows: UInt[np.ndarray, 'examples']
  numbers: UInt[np.ndarray, 'examples']
  groups: UInt64[np.ndarray, 'labels'] | None = None
  paths: links.Paths | None = None  # Of images that are files.

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
    return self.key_of(int(self.rows[index]))

  @property
  def files(self) -> tuple[links.Paths, Integer[np.ndarray, '_']] | None:
    return (self.paths, self.rows) if self.paths else None


def build(
    read: Callable[[int], bytes], key_of: Callable[[int], str], table: Table,
    config: columns_lib.LabelConfig, *, where: str, num_rows: int,
    read_mask: Callable[[int], bytes] | None = None,
    splits: cells_lib.Column | None = None,
    class_names: Sequence[str] | None = None,
    group_of: Callable[[int], str] | None = None,
    order_by: Callable[[int], str] | None = None, labels_from: str = '',
    unlabelled: Sequence[str] = (), notes: Sequence[str] = (),
    paths: links.Paths | None = None,
) -> protocol.DatasetSplits:
  """Parses labels and assigns rows to splits.

  Args:
    read: returns the content of a row's image file.
    key_of: returns a name of a row's image, the same on every machine.
    table: columns by name; one is called `config.group`, if that is set.
    config: kind of labels, and roles of the columns; without label columns, the
      images have no labels.
    where: file names, for messages.
    num_rows: number of images.
    read_mask: returns the content of a row's mask, if there are masks.
    splits: split of each row, from file names.
    class_names: declared by the file.
    group_of: without `config.group`, returns a text by which rows stay together
      in a hold-out; default: the keys.
    order_by: rows of a split are ordered by the hash of their group, if there
      are groups, and the hash of the text that this returns for a row; default:
      the keys.
    labels_from: origin of the labels; default: the names of the columns.
    unlabelled: further splits, whose images have no labels.
    notes: added to the description.
    paths: paths of the images, if they are files.

  Raises:
    ValueError: if there are no rows, no training rows, invalid labels, or one
      file in two splits.
  """
  if not num_rows:
    raise ValueError(f'{where} holds no rows.')
  if config.table.split is not None:
    splits = parse_splits(table[config.table.split], config.table.split, where)
  if not config.holdout and splits and len({*splits.cells}) == 1:
    splits = None  # Used as a whole, such as val.csv.
  rows_of = _rows_of_splits(splits, num_rows, where)
  labels = {
      name: cells_lib.Column.of(table[name]) for name in config.table.labels}
  parsed, kept, missing, no_labels = _parse(
      labels, rows_of, config, class_names, where)
  if labels and not no_labels and len(rows_of) > 1:
    _check_headers(table, labels, rows_of, where)
  unlabelled = sorted({*unlabelled} - {*rows_of} | {*missing})
  order, groups = _hashes(order_by or key_of, kept), None
  if config.group:
    names = groups_lib.clean(table[config.group]).take(kept)
    groups = groups_lib.hashes(names, group=config.group, where=where)
  of_kept, by_hash, few = _assign_splits(
      splits and splits.take(kept), lambda: (
          groups if groups is not None else
          _hashes(group_of or key_of, kept) if group_of or order_by else order),
      parsed, config.holdout, unlabelled, where)
  numbers = _hash_order(order, groups, of_kept, by_hash=by_hash)
  _check_trained(parsed, numbers, where)
  if groups is not None:
    few = ['groups: ' + ', '.join(
        f'{split} {len(np.unique(groups[of])):,}'
        for split, of in numbers.items()), *few]
    few += groups_lib.check_undivided(
        {split: groups[of] for split, of in numbers.items()},
        lambda split, i: names[numbers[split][i]], where=where,
        divided=config.divided_groups)
  eval_split = split_strings.choose_eval_split(list(numbers))
  labels_from = labels_from or (
      f'column{"s" * (len(labels) > 1)} {files.shorten(labels, 4)}')
  sources = _sources(
      read, read_mask, key_of, parsed.compact(), numbers, kept, groups,
      paths)
  links.check_splits(sources, where=where)
  return protocol.DatasetSplits(
      sources,
      num_classes=parsed.num_classes, class_names=parsed.class_names,
      multi_label=parsed.kind == 'multi', eval_split=eval_split,
      targets=parsed.targets, held_out=by_hash, unlabelled=tuple(unlabelled),
      no_labels=no_labels, description='; '.join([
          f'{where}: ' + (
              'masks' if read_mask and no_labels else parsed.describe())
          + f' ({labels_from})' * (not no_labels),
          ', '.join(f'{name} {len(of):,}' for name, of in numbers.items())
          + ', chosen by a hash' * by_hash
          + f', evaluated on {eval_split}' * (
              eval_split not in ('test', 'train')),
          *map(protocol.describe_unlabelled, unlabelled), *notes, *few]))


def _sources(
    read: Callable[[int], bytes], read_mask: Callable[[int], bytes] | None,
    key_of: Callable[[int], str], parsed: label_rules.ParsedLabels,
    numbers: Mapping[str, _Rows], kept: _Rows,
    groups: UInt64[np.ndarray, 'rows'] | None, paths: links.Paths | None,
) -> dict[str, protocol.Source]:
  """Returns the splits, given which of the kept rows each has."""
  share = lambda rows: shared.share(shared.compact(rows))
  found: dict[str, protocol.Source] = {}
  for name, of in numbers.items():
    rows = share(kept[of])
    found[name] = TableSource(
        read, read_mask, key_of, parsed, rows,
        rows if np.array_equal(rows, of) else share(of),  # Mapped once.
        groups, paths)
  return found


def _parse(
    labels: _Labels, rows_of: Mapping[str, _Rows],
    config: columns_lib.LabelConfig, class_names: Sequence[str] | None,
    where: str,
) -> tuple[label_rules.ParsedLabels, _Rows, list[str], str]:
  """Parses label columns; there may be none.

  Returns:
    The labels of the rows that are kept, these rows, the splits that are left
    out because they have no labels, and why no row has a label, or ''.
  """
  missing, no_labels = [], config.no_labels
  if labels:
    missing = _unlabelled_splits(labels, rows_of)
    if 'train' in missing:
      no_labels = (
          f'The training images of {where} have no labels: each cell of '
          f'{files.shorten(labels, 8)} is missing, empty or -1.')
  if not no_labels:
    kept = np.sort(np.concatenate([
        rows for split, rows in rows_of.items() if split not in missing]))
    parse = functools.partial(
        label_rules.parse_labels, separator=config.table.separator,
        class_names=class_names, where=where)
    select = lambda rows: {
        name: column.take(rows) for name, column in labels.items()}
    try:
      parsed = parse(select(kept), kind=config.target)
      if parsed.kind == 'regression' and config.target == 'auto':
        # Classes in train stay classes if another split has another number.
        parsed = parse(select(kept), kind=parse(
            select(rows_of['train']), kind='auto').kind)
      return parsed, kept, missing, ''
    except protocol.NoLabels as error:
      no_labels = str(error)
  kept = np.sort(np.concatenate([*rows_of.values()]))
  return label_rules.ParsedLabels(
      'none', np.zeros(len(kept), np.int32), 1), kept, [], no_labels


def _hashes(
    text_of: Callable[[int], str], rows: _Rows) -> UInt64[np.ndarray, 'rows']:
  return split_strings.stable_hashes(map(text_of, rows.data), len(rows))


def _unlabelled_splits(
    labels: _Labels, rows_of: Mapping[str, _Rows]) -> list[str]:
  """Returns the splits all of whose labels are missing.

  See `label_rules.find_missing_marks`.
  """
  def find(marks: Collection[str]) -> list[str]:
    has_label = np.any([column.array(
        lambda cell: not label_rules.is_missing(cell, marks=marks), bool)
                        for column in labels.values()], axis=0)
    return [split for split, rows in rows_of.items()
            if not has_label[rows].any()]

  found = find(label_rules.MISSING_MARKS)
  if not found or 'train' in found:
    return found
  marks = label_rules.find_missing_marks([
      column.take(rows_of['train']) for column in labels.values()])
  return [split for split in find(marks) if split in found]


def _check_headers(
    table: Table, labels: _Labels, rows_of: Mapping[str, _Rows], where: str,
) -> None:
  """Raises if a split lacks a label column that `train` has, but has others.

  A split without labels may lack all label columns.
  """
  filled = {name: cells_lib.Column.of(cells).array(
      lambda cell: cell is not None, bool) for name, cells in table.items()}
  header = {split: [name for name, of in filled.items() if of[rows].any()]
            for split, rows in rows_of.items()}
  expected = header['train']
  for split, found in header.items():
    missing = [name for name in labels
               if name in expected and name not in found]
    if missing and (
        len(missing) < len(labels) or not {*found} <= {*expected}):
      raise ValueError(
          f'{split} of {where} lacks the label column {missing[0]!r}: its '
          f'columns are {files.shorten(found, 20)}, but those of train are '
          f'{files.shorten(expected, 20)}. Use the same names in every split. '
          'If the split has no labels, remove the columns that train lacks.')


def parse_splits(
    values: label_rules.Column, column: str, where: str) -> cells_lib.Column:
  """Returns the split of each row; raises ValueError if one is missing."""
  cells = cells_lib.Column.of(values)
  empty = cells.where(lambda cell: label_rules.clean(cell) is None)
  if len(empty):
    raise ValueError(
        f'{len(empty):,} of {len(values):,} rows of {where} have no split in '
        f'column {column!r} (the first: row {empty[0] + 1}). Fill them in, or '
        'remove the column: splits are then made by a hash.')
  return cells.map(split_strings.split_name)


def _rows_of_splits(
    splits: cells_lib.Column | None, count: int, where: str,
) -> Mapping[str, _Rows]:
  """Returns the rows of each split, of which one must be `train`."""
  rows_of = {'train': np.arange(count)} if splits is None else splits.rows_of()
  if 'train' not in rows_of:
    raise ValueError(
        f'{where} has no training split with examples; its splits: '
        f'{files.shorten(sorted(rows_of), 8)}. One must be called train.')
  return rows_of


def _assign_splits(
    splits: cells_lib.Column | None,
    groups: Callable[[], UInt64[np.ndarray, 'rows']],
    parsed: label_rules.ParsedLabels, fraction: float,
    unlabelled: Sequence[str], where: str,
) -> tuple[cells_lib.Column, bool, list[str]]:
  """Returns the split of each row, whether a hash chose it, and notes.

  Rows of several splits keep them. Otherwise, a `fraction` of the groups, given
  by their hashes, is held out; all rows are `train` if it is 0. The held-out
  part is called `test` unless that is an unlabelled split.
  """
  if splits and len({*splits.cells}) > 1:
    if fraction not in (0, columns_lib.HOLDOUT):
      raise ValueError(
          f'data.holdout is {fraction}, but {where} has splits '
          f'({", ".join(sorted({*splits.cells}))}). Remove it.')
    return splits, False, []
  if not fraction:
    return cells_lib.Column.repeat(['train'], [len(parsed.values)]), False, []
  classes, names = None, parsed.class_names or ()
  if parsed.kind == 'single':
    classes = np.asarray(parsed.values)
  held = holdout.hold_out(groups(), classes, names=names, fraction=fraction)
  notes = ([] if classes is None else
           holdout.describe_few(classes, held, names))
  name = next((name for name in ('test', 'val') if name not in unlabelled),
              'held_out')
  return cells_lib.Column(['train', name], held.astype(np.uint8)), True, notes


def _hash_order(
    hashes: UInt64[np.ndarray, 'rows'],
    groups: UInt64[np.ndarray, 'rows'] | None, splits: cells_lib.Column, *,
    by_hash: bool,
) -> dict[str, _Rows]:
  """Returns the rows of each split in hash order: 'train[:50%]' is a sample.

  Groups are ordered first. Besides `train`, splits made `by_hash` have one that
  is held out, even if it is empty.
  """
  order = np.lexsort((hashes,) if groups is None else (hashes, groups))
  rows_of = {name: rows for name, rows in dataclasses.replace(
      splits, codes=splits.codes[order]).rows_of().items() if len(rows)}
  others = sorted({*rows_of} - {'train'}) or ['test'] * by_hash
  return {name: order[rows_of.get(name, [])]
          for name in ('train', *others)}


def _check_trained(
    parsed: label_rules.ParsedLabels,
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
