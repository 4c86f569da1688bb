"""Whether two selections have an example in common: held-out data must not.

    'train[:90%]' -> (train, 0 to 1293)      a range, where all is taken
    a subset      -> (train, 3, 17, 40, ...)

Examples are told apart by their numbers where a source is numbered, so that
hundreds of millions take no time, and by their keys elsewhere.
"""

from collections.abc import Iterator
import os
from typing import Any

from jaxtyping import Int
import numpy as np

from vit_jax.data import dataset as dataset_lib
from vit_jax.data.sources import protocol
from vit_jax.data.splits import random_subsets
from vit_jax.data.splits import split_strings

# Indices of examples: all from the first to the last, or each.
_Chosen = range | Int[np.ndarray, '_']


def overlap(one: dataset_lib.Dataset, other: dataset_lib.Dataset) -> bool:
  """Returns whether an example of one selection is in the other, too.

  Only within a data set: what is published under two names is not told to be
  the same.
  """
  ranges, keys = _split(one)
  other_ranges, other_keys = _split(other)
  return bool(keys & other_keys) or any(
      name == other_name and _meet(chosen, other_chosen)
      for name, chosen in ranges for other_name, other_chosen in other_ranges)


def _split(
    dataset: dataset_lib.Dataset,
) -> tuple[list[tuple[str, _Chosen]], set[tuple[str, str]]]:
  """Returns the numbers, by their sources' names, and the keys of others."""
  place = os.path.abspath(os.path.expanduser(dataset.name))
  ranges: list[tuple[str, _Chosen]] = []
  keys: set[tuple[str, str]] = set()
  for source, chosen in _leaves(dataset.source, range(len(dataset))):
    if isinstance(source, protocol.Numbered):
      name, offset = source.numbering
      ranges.append((name, _shift(chosen, offset)))
    else:
      # Those of a folder are paths within it.
      keys |= {(place, source.key(int(i))) for i in chosen}
  return ranges, keys


def _leaves(
    source: protocol.Source, chosen: _Chosen,
) -> Iterator[tuple[Any, _Chosen]]:
  """Yields the sources that a selection is made of, and what it has of each."""
  if isinstance(source, split_strings.Concatenated):
    start = 0
    for part, first, last in source.parts:
      stop = start + last - first
      yield from _leaves(
          part, _shift(_within(chosen, start, stop), first - start))
      start = stop
  elif isinstance(source, split_strings.Subset):
    yield from _leaves(source.source, _take(source.indices, chosen))
  elif isinstance(source, random_subsets.Marked):
    marked = np.flatnonzero(np.unpackbits(source.bits))
    yield from _leaves(source.source, _take(marked, chosen))
  else:
    yield source, chosen


def _within(chosen: _Chosen, start: int, stop: int) -> _Chosen:
  if isinstance(chosen, range):
    first = max(chosen.start, start)
    return range(first, max(first, min(chosen.stop, stop)))
  return chosen[(chosen >= start) & (chosen < stop)]


def _shift(chosen: _Chosen, by: int) -> _Chosen:
  if isinstance(chosen, range):
    return range(chosen.start + by, chosen.stop + by)
  return chosen + by


def _take(indices: np.ndarray, chosen: _Chosen) -> np.ndarray:
  return indices[chosen.start:chosen.stop] if isinstance(
      chosen, range) else indices[chosen]


def _meet(one: _Chosen, other: _Chosen) -> bool:
  if isinstance(one, range):
    return len(_within(other, one.start, one.stop)) > 0
  if isinstance(other, range):
    return len(_within(one, other.start, other.stop)) > 0
  return bool(np.isin(one, other).any())
