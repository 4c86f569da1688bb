"""Exclusion lists: files with one example key per line.

`main.py deduplicate` writes them, for example for the near-duplicates of a test
set in a training set.
"""

from collections.abc import Collection
import dataclasses

from etils import epath
from jaxtyping import Bool, Integer
import numpy as np

from vit_jax import schema
from vit_jax import untrusted
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings


@dataclasses.dataclass(frozen=True)
class Excluded:
  """Result of applying an exclusion list."""
  path: str
  keys: int  # Number of keys in the list.
  examples: int  # Number of examples that were left out.

  def __str__(self) -> str:
    unmatched = self.keys - self.examples
    return f'{self.examples:,} examples are excluded by {self.path}' + (
        f' ({unmatched:,} of its keys match no example of this split)'
        if unmatched > 0 else '')


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


def exclude(
    source: protocol.Source, path: str, *, name: str,
) -> tuple[protocol.Source, Excluded]:
  """Returns the examples that an exclusion list does not name, in order.

  Raises:
    ValueError: if the list cannot be read, matches no example, or matches all.
  """
  keys = _read_keys(path)
  matches = np.concatenate([
      _match(*leaf, keys) for leaf in split_strings.leaves(source)])
  found = int(matches.sum())
  if keys and not found:
    key = min(keys)
    raise ValueError(
        f'None of the {len(keys):,} keys of {path} (data.exclude) matches an '
        f'example of {name}: the list has {key!r}, the split has '
        f'{source.key(0)!r}.{schema.nearest(key, [source.key(0)])} Was the '
        'list written for another dataset or split?')
  if found == len(matches):
    raise ValueError(f'{path} (data.exclude) names every example of {name}.')
  return (split_strings.Subset.where(source, ~matches) if found else source,
          Excluded(path, len(keys), found))


def _match(
    source: protocol.Source, indices: Integer[np.ndarray, 'examples'],
    keys: Collection[str],
) -> Bool[np.ndarray, 'examples']:
  """Returns whether the key of each of some examples is one of `keys`."""
  if not isinstance(source, protocol.Numbered):
    return np.array([source.key(i) in keys for i in indices.tolist()], bool)
  # Parses the listed keys instead of building hundreds of millions of keys.
  name, offset = source.numbering
  pairs = [key.rpartition(' ') for key in keys]
  return np.isin(indices, [int(number) - offset for prefix, _, number in pairs
                           if prefix == name and number.isdecimal()])
