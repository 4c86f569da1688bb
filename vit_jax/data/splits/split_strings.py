"""Split strings such as 'train[:98%]', and selections of examples."""

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import hashlib
import os
import re
import types
from typing import Any

from jaxtyping import Integer, UInt64
import numpy as np

from vit_jax import schema
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import protocol
from vit_jax.exceptions import UserError

VAL = 'val'  # The split of `data.val_source`.
NAMES = ('train', 'test', VAL, 'validation')  # Of folders and files.
VALIDATION = (VAL, 'validation', 'valid', 'dev')  # In order of preference.


def stable_hash(content: str | bytes) -> int:
  """Returns a 64-bit hash that is the same in every process, unlike `hash`."""
  if isinstance(content, str):
    content = content.encode(errors='surrogatepass')
  return int.from_bytes(
      hashlib.blake2b(content, digest_size=8).digest(), 'little')


def stable_hashes(
    texts: Iterable[str], count: int) -> UInt64[np.ndarray, 'texts']:
  """Returns the hash of each of `count` texts."""
  return np.fromiter(map(stable_hash, texts), np.uint64, count)


def split_name(value: Any) -> str:
  """Returns the name of a split in lower case; '' for None."""
  return '' if value is None else re.sub(
      r'\W+', '_', str(value).strip().lower())


def find_in_file(path: os.PathLike) -> str | None:
  """Returns the split of a file: 'test' of 'test-01.tar' and 'test/01.tar'."""
  folder, name = os.path.split(path)
  words = re.split(r'[\W\d_]', name)[0], os.path.basename(folder)
  return next((word for word in words if word in NAMES), None)


def choose_eval_split(splits: Sequence[str]) -> str:
  """Returns the split to evaluate on; `train` only if there is no other."""
  return next((name for name in ('test', *VALIDATION, *splits)
               if name in splits and name != 'train'), 'train')


@dataclasses.dataclass(frozen=True, eq=False)
class Subset(protocol.Source):
  """Chosen examples of one or several sources, such as 'a[:10]+b'.

  Attributes:
    parts: sources, and the indices of their chosen examples in order.
  """
  parts: tuple[
      tuple[protocol.Source, range | Integer[np.ndarray, 'chosen']], ...]

  @classmethod
  def where(cls, source: protocol.Source, mask: Any) -> 'Subset':
    """Returns the examples whose mask is true."""
    return cls(((source, columns_lib.compact(np.flatnonzero(mask))),))

  @functools.cached_property
  def _ends(self) -> list[int]:
    return np.cumsum([len(chosen) for _, chosen in self.parts]).tolist()

  def __len__(self) -> int:
    return self._ends[-1] if self.parts else 0

  def __getitem__(self, index: int) -> dict[str, Any]:
    source, i = self._find(index)
    return source[i]

  def label(self, index: int) -> Any:
    source, i = self._find(index)
    return source.label(i)

  def key(self, index: int) -> str:
    source, i = self._find(index)
    return source.key(i)

  def _find(self, index: int) -> tuple[protocol.Source, int]:
    if not 0 <= index < len(self):
      raise IndexError(f'Example {index} of {len(self)}.')
    part = bisect.bisect_right(self._ends, index)
    source, chosen = self.parts[part]
    return source, int(chosen[index - self._ends[part]])


def leaves(
    source: protocol.Source,
    indices: Integer[np.ndarray, 'chosen'] | None = None,
) -> Iterator[tuple[protocol.Source, Integer[np.ndarray, 'part']]]:
  """Yields the sources underlying a selection, and their selected indices.

  `indices`, in increasing order, restricts the selection; default: all of it.
  """
  if indices is None:
    indices = np.arange(len(source))
  if not isinstance(source, Subset):
    yield source, indices
    return
  start = 0
  for part, chosen in source.parts:
    first, last = np.searchsorted(indices, (start, start + len(chosen)))
    places = indices[first:last] - start
    yield from leaves(part, places + chosen.start if isinstance(
        chosen, range) else chosen[places].astype(np.int64))
    start += len(chosen)


def labels(source: protocol.Source) -> Iterator[Any]:
  """Yields the labels of a selection; sources read many of them at a time."""
  for leaf, chosen in leaves(source):
    yield from leaf.labels_of(chosen)


def has_groups(source: protocol.Source) -> bool:
  """Whether a selection, or a part of it, has groups."""
  none = np.zeros(0, np.int64)  # No indices of a large source are made.
  return any(
      leaf.groups_of(none) is not None for leaf, _ in leaves(source, none))


def groups(
    source: protocol.Source,
    indices: Integer[np.ndarray, 'chosen'] | None = None,
) -> UInt64[np.ndarray, 'chosen'] | None:
  """Returns the hashes of the groups of a selection; None without groups.

  An example of a source without groups, beside others, is its own group. For
  `indices`, see `leaves`.
  """
  if not has_groups(source):
    return None
  return np.concatenate([
      stable_hashes(map(leaf.key, chosen.tolist()), len(chosen))
      if (found := leaf.groups_of(chosen)) is None else found
      for leaf, chosen in leaves(source, indices)])


def expand_all(split: str, splits: Mapping[str, protocol.Source]) -> str:
  """Returns 'train[:9%]+test[:9%]' for 'all[:9%]': a part of every split."""
  if 'all' in splits:
    return split
  filled = [name for name, source in splits.items() if len(source)]
  expanded = re.sub(
      r'(?<![^+\s])all(\[[^]]*%[^]]*\])?(?![^+\s])',
      lambda found: '+'.join(name + (found[1] or '') for name in filled), split)
  if 'all' in names(expanded):
    raise UserError(
        f'The split {split!r} takes a number of examples from `all`, which '
        'accepts only percentages, of each split. Write "all" or "all[:50%]", '
        f'or name a split: {", ".join(filled)}.')
  return expanded


def check_labelled(
    split: str, unlabelled: Collection[str], *, name: str) -> None:
  """Raises a UserError if a split string has a part without labels."""
  found = [part for part in names(split) if part in unlabelled]
  if found:
    raise UserError(
        f'The split {found[0]!r} of {name} has no labels (each is missing, '
        'empty or -1), so it cannot be trained on or evaluated. Use another '
        'split.')


def names(split: str) -> list[str]:
  """Returns ['train', 'test'] for 'train[:9%]+test'."""
  return [part.split('[')[0].strip() for part in parts(split)]


def parts(split: str) -> list[str]:
  """Returns ['train[:9%]', 'test'] for 'train[:9%] + test'."""
  return [part.strip() for part in split.split('+')]


def select_split(
    opened: protocol.DatasetSplits, split: str, *, name: str,
) -> protocol.Source:
  """Returns the examples of a TFDS split string.

  For example 'train', 'train[:98%]', 'train[:800]+validation[:200]'; see
  https://www.tensorflow.org/datasets/splits. A part never divides a group: its
  bounds move to the next start of a group.

  Raises:
    UserError: for an invalid, unknown or empty split.
  """
  if split in opened.splits:
    source = opened.splits[split]
  else:
    source = Subset(tuple(
        (opened.splits[part], range(*_move_to_groups(
            opened.splits[part], bounds)))
        for part, *bounds in _parse_split(opened.splits, split, name)))
  if not len(source):
    whole = ' Parts have whole groups (data.group).' * any(
        map(has_groups, opened.splits.values()))
    raise UserError(
        f'The split {split!r} of {name} has no examples. Lengths: '
        f'{_lengths(opened.splits)}. Give another, such as "train[:90%]".'
        + whole)
  return source


def _move_to_groups(
    source: protocol.Source, bounds: Sequence[int]) -> list[int]:
  """Moves each bound of a slice to the next start of a group, or the end."""
  found = groups(source)
  if found is None:
    return list(bounds)
  starts = np.concatenate([
      [0], np.flatnonzero(found[1:] != found[:-1]) + 1, [len(found)]])
  return starts[np.searchsorted(starts, bounds)].tolist()


def _parse_split(
    splits: Mapping[str, protocol.Source], split: str, name: str,
) -> list[tuple[str, int, int]]:
  if 'shard' in split:
    raise UserError(
        f'The split {split!r} of {name} is in shards, which depend on how the '
        'files were written. Use examples or percent.')
  for part in names(split):
    schema.check_name(part, list(splits), what=f'split of {name}')
  # Slow to import, and needed only for split strings with ranges.
  import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
  lengths = {key: types.SimpleNamespace(num_examples=len(source))
             for key, source in splits.items()}
  try:
    absolute = tfds.core.ReadInstruction.from_spec(split).to_absolute(lengths)
  except ValueError as error:
    raise UserError(
        f'Cannot read the split {split!r} of {name}: '
        f'{str(error).splitlines()[0]} Write for example "train", '
        '"train[:98%]", "train[100:200]" or "train+test". Lengths: '
        f'{_lengths(splits)}.') from error
  return [
      (a.splitname, a.from_ or 0, len(splits[a.splitname]) if a.to is None
       else a.to) for a in absolute]


def _lengths(splits: Mapping[str, protocol.Source]) -> str:
  return ', '.join(f'{name} {len(of):,}' for name, of in splits.items())
