"""Detects whether two splits share an example, so that held-out data stay so.

Examples of numbered sources are compared by number, so that hundreds of
millions take no time; those of other sources by key.
"""

from collections.abc import Iterator
import os
from typing import Any

from jaxtyping import Integer
import numpy as np

from vit_jax.data import dataset as dataset_lib
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings

_Indices = range | Integer[np.ndarray, '_']


def overlap(one: dataset_lib.Dataset, other: dataset_lib.Dataset) -> bool:
  """Returns whether two selections of a data set share an example.

  Data that is published under two names counts as different.
  """
  ranges, keys = _identify(one)
  other_ranges, other_keys = _identify(other)
  return bool(keys & other_keys) or any(
      name == other_name and _intersect(indices, other_indices)
      for name, indices in ranges for other_name, other_indices in other_ranges)


def _identify(
    dataset: dataset_lib.Dataset,
) -> tuple[list[tuple[str, _Indices]], set[tuple[str, str]]]:
  """Returns the numbers of numbered sources, and the keys of others."""
  path = os.path.abspath(os.path.expanduser(dataset.name))
  ranges: list[tuple[str, _Indices]] = []
  keys: set[tuple[str, str]] = set()
  for source, indices in _leaves(dataset.source, range(len(dataset))):
    if isinstance(source, protocol.Numbered):
      name, offset = source.numbering
      ranges.append((name, _shift(indices, offset)))
    else:  # Keys of a folder are relative to its path.
      keys |= {(path, source.key(int(i))) for i in indices}
  return ranges, keys


def _leaves(
    source: protocol.Source, indices: _Indices,
) -> Iterator[tuple[Any, _Indices]]:
  """Yields the underlying sources, and which of their examples are selected."""
  if isinstance(source, split_strings.Concatenated):
    start = 0
    for part, first, last in source.parts:
      stop = start + last - first
      yield from _leaves(
          part, _shift(_clip(indices, start, stop), first - start))
      start = stop
  elif isinstance(source, split_strings.Subset):
    chosen = source.indices.astype(np.int64)
    yield from _leaves(
        source.source, chosen[indices.start:indices.stop]
        if isinstance(indices, range) else chosen[indices])
  else:
    yield source, indices


def _clip(indices: _Indices, start: int, stop: int) -> _Indices:
  if isinstance(indices, range):
    first = max(indices.start, start)
    return range(first, max(first, min(indices.stop, stop)))
  return indices[(indices >= start) & (indices < stop)]


def _shift(indices: _Indices, by: int) -> _Indices:
  if isinstance(indices, range):
    return range(indices.start + by, indices.stop + by)
  return indices + by


def _intersect(one: _Indices, other: _Indices) -> bool:
  if isinstance(one, range):
    return len(_clip(other, one.start, one.stop)) > 0
  if isinstance(other, range):
    return len(_clip(one, other.start, other.stop)) > 0
  return bool(np.isin(one, other).any())
