"""From the rows of a table, whatever file it is of, to a data set with splits.

A table of any layout ends here: images by row number (a `Reader`), columns of
labels, and perhaps the split of each row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import re
import typing
from typing import Any, Protocol

from jaxtyping import Bool, Int64
import numpy as np

from vit_jax import schema
from vit_jax.data.sources import label_rules as label_rules_lib
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings as split_strings_lib


@typing.runtime_checkable
class Reader(Protocol):
  """The images of all rows."""

  def read(self, row: int) -> bytes:
    """Returns the image's file."""

  def key(self, row: int) -> str:
    """Returns what names it, the same on every machine."""


@dataclasses.dataclass(frozen=True)
class TableConfig:
  """The section `data.table`: which column is what, where names do not say.

  Attributes:
    path: the column of the image: of its path or, in Parquet, of its bytes.
    label: the column of the label; several, separated by commas, are a class
      or a target each. In a tar, the key of a JSON member.
    split: the column that says each row's split.
    key: a column whose rows belong together (a patient, a scene): where splits
      are made, those of one value stay in one.
    separator: between the labels of a cell.
    folder: where relative paths begin; itself relative to the table.
    suffix: appended to each path: '.jpg'.
  """
  path: str | None = None
  label: str | tuple[str, ...] | None = None
  split: str | None = None
  key: str | None = None
  separator: str | None = None
  folder: str = ''
  suffix: str = ''

  @property
  def labels(self) -> tuple[str, ...] | None:
    """Names of label columns, if they are given."""
    if isinstance(self.label, str):
      return tuple(name.strip() for name in self.label.split(','))
    return self.label


@dataclasses.dataclass(frozen=True)
class Understood:
  """How a person wants labels to be understood: `data.target`, `data.table`."""
  target: label_rules_lib.Kind = 'auto'
  table: TableConfig = TableConfig()


AUTO = Understood()


@dataclasses.dataclass(frozen=True)
class Columns:
  """Which column of a table is what."""
  path: str | None
  labels: tuple[str, ...]
  split: str | None
  key: str | None


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
  """Some rows of a table: a split."""
  reader: Reader
  targets: label_rules_lib.Targets
  rows: Int64[np.ndarray, 'examples']  # numbers of the reader's rows
  numbers: Int64[np.ndarray, 'examples']  # the same in `targets`

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return {'image': self.reader.read(int(self.rows[index])),
            'label': self.label(index)}

  def label(self, index: int) -> Any:
    return self.targets.of(int(self.numbers[index]))

  def key(self, index: int) -> str:
    return self.reader.key(int(self.rows[index]))


_PATHS = (
    'path', 'file', 'filename', 'file_name', 'filepath', 'filepaths',
    'file_path', 'image', 'image_path', 'image_file', 'img', 'img_path',
    'images', 'image_id')
_LABELS = (
    'label', 'labels', 'class', 'class_name', 'target', 'targets', 'category',
    'categories', 'cls', 'fine_label')
_SPLITS = ('split', 'subset', 'set', 'partition', 'data_set')
_KEYS = ('key', 'id')


def choose_columns(
    table: Mapping[str, label_rules_lib.Column], understood: Understood, *,
    where: str, is_path: Callable[[Any], bool] | None = None,
) -> Columns:
  """Tells which column of a table is what.

  Args:
    table: columns by name.
    understood: what a person said of them.
    where: the file, for messages.
    is_path: tells the cell of an image by its look; None if there are no
      images among the columns.

  Raises:
    ValueError: if a column is not there, or cannot be told.
  """
  config, names = understood.table, list(table)
  for asked in (config.path, config.split, config.key, *(config.labels or ())):
    if asked is not None:
      schema.check_name(asked, names, what=f'column of {where}')
  path = config.path or (None if is_path is None else path_column(names))
  if path is None and is_path is not None:
    looks = [name for name in names if table[name] and all(
        is_path(value) for value in table[name][:20])]
    if len(looks) != 1:
      raise ValueError(
          f'No column of {where} is known to hold the images. Its columns: '
          f'{", ".join(names)}; expected one of {", ".join(_PATHS[:6])}. Name '
          'it: --config.data.table.path=COLUMN')
    path, = looks
  split = config.split or _named(names, _SPLITS)
  # An id that is there by chance must not decide what is split from what.
  ids = config.key or _named(names, _KEYS)
  others = [n for n in names if n not in (path, split, ids)]
  labels = config.labels or _find_labels(
      table, others, understood.target, where)
  return Columns(path, labels, split, config.key)


def path_column(names: Iterable[str]) -> str | None:
  """Returns the column that holds images by its name."""
  return _named(list(names), _PATHS)


def _named(names: Sequence[str], known: Sequence[str]) -> str | None:
  """Returns the name that comes first among those that are known."""
  plain = {re.sub(r'[ -]', '_', name.strip().lower()): name for name in names}
  return next((plain[name] for name in known if name in plain), None)


def _find_labels(
    table: Mapping[str, label_rules_lib.Column], others: Sequence[str],
    target: str, where: str,
) -> tuple[str, ...]:
  """Returns the columns of labels: one by its name, or all that are left."""
  named = _named(others, _LABELS)
  if named is not None:
    return (named,)
  if len(others) == 1 or (others and all(
      label_rules_lib.are_flags(table[name]) for name in others)):
    return tuple(others)
  if others and target == 'regression' and all(
      label_rules_lib.numbers(table[name]) is not None for name in others):
    return tuple(others)
  left = (f'Of {", ".join(others)}, any could be it' if others
          else 'There is no other column than that of the images')
  raise ValueError(
      f'No column of {where} is known to hold the labels. {left}; expected one '
      f'of {", ".join(_LABELS[:7])}. Name it, or several: '
      '--config.data.table.label=COLUMN')


def assemble(
    reader: Reader, table: Mapping[str, label_rules_lib.Column], columns: Columns,
    understood: Understood, *, where: str, splits: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
    blocks: Int64[np.ndarray, 'rows'] | None = None, note: str = '',
) -> protocol.Opened:
  """Returns a data set of the rows of a table.

  Args:
    reader: of their images.
    table: columns by name.
    columns: which of them is what.
    understood: what a person said of them.
    where: the file, for messages.
    splits: of each row, where the files say it and no column does.
    names: of the classes, where the files say them.
    groups: what rows of one value stay together by where a split is made, if
      no column says it and it is not the reader's key.
    blocks: number of the block of each row that is read as a whole; rows of a
      block stay together.
    note: what else a person should know.

  Raises:
    ValueError: if there are no rows, no rows to train on, or labels that
      cannot be understood.
  """
  count = len(table[columns.labels[0]])
  if not count:
    raise ValueError(f'{where} holds no rows.')
  if columns.split is not None:
    splits = splits_in(table[columns.split], columns.split, where)
  kept, notes = _labelled(table, columns.labels, splits, where)
  if splits is not None:
    splits = [splits[row] for row in kept]
  found = label_rules_lib.understand(
      {name: [table[name][row] for row in kept] for name in columns.labels},
      kind=understood.target, separator=understood.table.separator,
      names=names, where=where)
  if columns.key is not None:
    groups = table[columns.key]
  given = splits is not None and len(set(splits)) > 1
  if splits is None or not given:
    splits = split_by_hash(
        [reader.key(row) if groups is None else str(groups[row])
         for row in kept], found)
  chosen = _ordered(reader, kept, splits, blocks)
  _check_trained(found, chosen, where)
  sizes = ', '.join(f'{name} {len(of):,}' for name, of in chosen.items())
  few = columns.labels[:4] + ('...',) * (len(columns.labels) > 4)
  told = f'column{"s" * (len(few) > 1)} {", ".join(few)}'
  return protocol.Opened(
      {name: Rows(reader, found, np.asarray(kept, np.int64)[numbers], numbers)
       for name, numbers in chosen.items()},
      found.num_classes, found.class_names, multi_label=found.kind == 'multi',
      eval_split=split_strings_lib.choose_eval_split(list(chosen)),
      targets=found.targets, description='; '.join([
          f'{where}: {found.describe()} ({told})',
          sizes + ('' if given else ', chosen by a hash'), *notes,
          *filter(None, [note])]))


def splits_in(
    values: label_rules_lib.Column, column: str, where: str) -> list[str]:
  """Returns the splits that a column says.

  Raises:
    ValueError: if some rows are of none.
  """
  empty = [row for row, v in enumerate(values) if label_rules_lib.is_missing(v)]
  if empty:
    raise ValueError(
        f'{len(empty):,} of {len(values):,} rows of {where} have no split in '
        f'column {column!r} (the first: row {empty[0] + 1}). Fill them in, or '
        'remove the column: splits are then made.')
  return [split_name(value) for value in values]


def split_name(value: Any) -> str:
  """Returns a split by the name that the program has for it.

  `train` is always called so; others keep their names, in lower case.
  """
  name = re.sub(r'\W+', '_', str(value).strip().lower())
  return {'training': 'train', 'testing': 'test', 'trn': 'train'}.get(
      name, name)


def split_by_hash(
    keys: Sequence[str], found: label_rules_lib.Targets) -> list[str]:
  """Holds out those whose keys' hashes say so, which no other row changes.

  A class that would have no image left to train on stays in `train` whole. Of
  a handful of rows, none may fall there: the lowest hash then does.
  """
  held = _still_trained(
      np.array([split_strings_lib.is_held_out(key) for key in keys]), found)
  if not held.any():
    for key in sorted(set(keys), key=split_strings_lib.stable_hash)[:100]:
      held = _still_trained(np.array([k == key for k in keys]), found)
      if held.any():
        break
  return ['test' if h else 'train' for h in held]


def _still_trained(
    held: Bool[np.ndarray, 'rows'], found: label_rules_lib.Targets,
) -> Bool[np.ndarray, 'rows']:
  """Returns which rows to hold out, less the classes that would have no other.
  """
  if found.kind == 'single':
    labels = np.asarray(found.labels)
    trained = np.bincount(labels[~held], minlength=found.num_classes) > 0
    held = held & trained[labels]
  return held & (not held.all())


def _labelled(
    table: Mapping[str, label_rules_lib.Column], labels: Sequence[str],
    splits: Sequence[str] | None, where: str,
) -> tuple[list[int], list[str]]:
  """Returns the rows of splits that have labels, and words on the others."""
  count = len(table[labels[0]])
  if splits is None:
    return list(range(count)), []
  if 'train' not in splits:
    names = sorted(set(splits))
    raise ValueError(
        f'{where} has no split to train on; its splits: '
        f'{", ".join(names[:8])}. One must be called train.')
  with_labels = {'train'}
  for row, split in enumerate(splits):
    if split not in with_labels and not all(
        label_rules_lib.is_missing(table[name][row]) for name in labels):
      with_labels.add(split)
  without = sorted(set(splits) - with_labels)
  notes = [f'{name} has no labels, and is passed over' for name in without]
  return [r for r in range(count) if splits[r] in with_labels], notes


def _ordered(
    reader: Reader, kept: Sequence[int], splits: Sequence[str],
    blocks: Int64[np.ndarray, 'rows'] | None,
) -> dict[str, Int64[np.ndarray, 'examples']]:
  """Returns the rows of each split, numbered in `kept`.

  They come in the order of a hash, so that a part of a split is a sample of
  it; where whole blocks are read, blocks do, and the rows within each.
  """
  place = np.array([split_strings_lib.stable_hash(reader.key(row)) for row in kept],
                   np.uint64)
  order = np.argsort(place, kind='stable')
  if blocks is not None:
    of_row = blocks[np.asarray(kept)]
    hashes = np.array([split_strings_lib.stable_hash(f'block {block}')
                       for block in range(int(blocks.max()) + 1)], np.uint64)
    order = np.lexsort((place, hashes[of_row]))
  of_split = np.asarray(splits)[order]
  others = sorted(set(splits) - {'train'}) or ['test']
  return {name: order[of_split == name].astype(np.int64)
          for name in ('train', *others)}


def _check_trained(
    found: label_rules_lib.Targets,
    chosen: Mapping[str, Int64[np.ndarray, 'examples']], where: str) -> None:
  """Raises where a class is tested and never trained."""
  if found.kind != 'single':
    return
  labels = np.asarray(found.labels)
  trained = set(labels[chosen['train']].tolist())
  missing = sorted(set(labels.tolist()) - trained)
  if missing:
    named = [(found.class_names or ())[i] for i in missing]
    raise ValueError(
        f'{len(missing)} of the classes of {where} have no image in train, '
        f'only in other splits: {", ".join(named[:8])}. Add images to train, '
        'or remove these rows.')
