"""Leaves out the examples whose keys a list names (`data.exclude`).

`main.py deduplicate` writes such lists, one key per line.
"""

from collections.abc import Collection
import dataclasses

from etils import epath
from jaxtyping import Bool, Integer
import numpy as np

from vit_jax import schema
from vit_jax import untrusted
from vit_jax.data import dataset as dataset_lib
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings


def _read_keys(path: str) -> frozenset[str]:
  try:
    text = untrusted.read_text(
        epath.Path(path).expanduser(), errors='surrogateescape')
  except OSError as error:
    raise ValueError(
        f'Cannot read {path} (data.exclude): {error}. Write it with `python '
        'main.py deduplicate`, or give another path.') from error
  # `splitlines` would also split at Unicode separators inside file names.
  return frozenset(line for line in text.split('\n') if line)


def from_dataset(
    dataset: dataset_lib.Dataset, path: str, *, trained: str,
    may_match_none: bool,
) -> dataset_lib.Dataset:
  """Returns a dataset without the examples of a list, if it is trained on.

  Also the neighbours of k-NN, and others that are fitted to.

  Args:
    dataset: selects any split.
    path: the list.
    trained: the split string that is trained on.
    may_match_none: see `exclude`.
  """
  if not {*split_strings.names(dataset.split)} <= {
      *split_strings.names(trained)}:
    return dataset
  examples, summary = exclude(
      dataset.source, path, name=dataset.title, may_match_none=may_match_none)
  return dataclasses.replace(dataset, source=examples, excluded=summary)


def exclude(
    source: protocol.Source, path: str, *, name: str,
    may_match_none: bool = False,
) -> tuple[protocol.Source, str]:
  """Returns the examples that a list does not name, in order, and a summary.

  Raises:
    ValueError: if the list cannot be read, matches no example (unless
      `may_match_none`), or matches all.
  """
  keys = _read_keys(path)
  matches = np.concatenate([
      _match(*leaf, keys) for leaf in split_strings.leaves(source)])
  found = int(matches.sum())
  if keys and not found and not may_match_none:
    key = min(keys)
    raise ValueError(
        f'None of the {len(keys):,} keys of {path} (data.exclude) matches an '
        f'example of {name}: the list has {key!r}, the split has '
        f'{source.key(0)!r}.{schema.nearest(key, [source.key(0)])} Was the '
        'list written for another dataset or split?')
  if found == len(matches):
    raise ValueError(f'{path} (data.exclude) names every example of {name}.')
  summary = f'{found:,} examples are excluded by {path}'
  if len(keys) > found:
    summary += (f' ({len(keys) - found:,} of its keys match no example of this '
                'split)')
  return (split_strings.Subset.where(source, ~matches) if found else source,
          summary)


def _match(
    source: protocol.Source, indices: Integer[np.ndarray, 'examples'],
    keys: Collection[str],
) -> Bool[np.ndarray, 'examples']:
  """Returns whether the key of each of some examples is one of `keys`."""
  name, offset = source.numbering or ('', 0)
  if not len(indices) or source.key(0) != f'{name} {offset}':
    return np.array([source.key(i) in keys for i in indices.tolist()], bool)
  # Parses the listed keys instead of building hundreds of millions of keys.
  pairs = [key.rpartition(' ') for key in keys]
  return np.isin(indices, [int(number) - offset for prefix, _, number in pairs
                           if prefix == name and number.isdecimal()])
