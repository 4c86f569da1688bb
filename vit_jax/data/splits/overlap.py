"""Detects whether two splits share an example, so that held-out data stay so.

Selections are intervals of indices, so that hundreds of millions of numbered
examples take no time. Examples of other sources are compared by key.
"""

from collections.abc import Iterator
import os
from typing import Any

from jaxtyping import Int64
import numpy as np

from vit_jax.data import dataset as dataset_lib
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings

_Intervals = Int64[np.ndarray, '2 _']  # First and last + 1, in order.


def overlap(one: dataset_lib.Dataset, other: dataset_lib.Dataset) -> bool:
  """Returns whether two selections of a data set share an example.

  Data that is published under two names counts as different.
  """
  numbers, keys = _identify(one)
  other_numbers, other_keys = _identify(other)
  return bool(keys & other_keys) or any(
      name == other_name and _intersect(intervals, other_intervals)
      for name, intervals in numbers
      for other_name, other_intervals in other_numbers)


def _identify(
    dataset: dataset_lib.Dataset,
) -> tuple[list[tuple[str, _Intervals]], set[tuple[str, str]]]:
  """Returns the numbers of numbered sources, and the keys of others."""
  path = os.path.abspath(os.path.expanduser(dataset.name))
  numbers: list[tuple[str, _Intervals]] = []
  keys: set[tuple[str, str]] = set()
  for source, intervals in _leaves(
      dataset.source, np.array([[0], [len(dataset)]], np.int64)):
    if isinstance(source, protocol.Numbered):
      name, offset = source.numbering
      numbers.append((name, intervals + offset))
    else:  # Keys of a folder are relative to its path.
      keys |= {(path, source.key(i)) for i in _expand(intervals).tolist()}
  return numbers, keys


def _leaves(
    source: protocol.Source, intervals: _Intervals,
) -> Iterator[tuple[Any, _Intervals]]:
  """Yields the underlying sources, and which of their examples are selected."""
  if isinstance(source, split_strings.Concatenated):
    start = 0
    for part, first, last in source.parts:
      inside = np.clip(intervals, start, start + last - first)
      inside = inside[:, inside[0] < inside[1]]
      yield from _leaves(part, inside + (first - start))
      start += last - first
  elif isinstance(source, split_strings.Subset):
    chosen = source.indices[_expand(intervals)].astype(np.int64)
    yield from _leaves(source.source, np.stack([chosen, chosen + 1]))
  else:
    yield source, intervals


def _expand(intervals: _Intervals) -> Int64[np.ndarray, '_']:
  """Returns the indices in the intervals."""
  lengths = intervals[1] - intervals[0]
  starts = np.cumsum(lengths) - lengths
  return np.arange(lengths.sum()) + np.repeat(intervals[0] - starts, lengths)


def _intersect(one: _Intervals, other: _Intervals) -> bool:
  # The first interval of `one` that ends after each interval of `other` starts.
  index = np.searchsorted(one[1], other[0], side='right')
  inside = index < one.shape[1]
  return bool((one[0, index[inside]] < other[1, inside]).any())
