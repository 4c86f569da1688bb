"""Random subsets of a split, and splits without a list of excluded keys.

A random subset has the examples whose keys have the lowest hashes or, with
groups, those of the groups with the lowest hashes. The choice depends on the
keys alone, so it is the same on every machine and smaller subsets are part of
larger ones: 9 million of 30 million of 90 million (ViT,
figure 4, https://arxiv.org/abs/2010.11929).

`main.py deduplicate` writes lists of keys to exclude, one per line.
"""

from collections.abc import Collection

from etils import epath
from jaxtyping import Bool, Integer, UInt64
import numpy as np

from vit_jax import schema
from vit_jax import untrusted
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings


def hash_numbers(
    name: str, numbers: Integer[np.ndarray, 'numbers'],
) -> UInt64[np.ndarray, 'numbers']:
  """Returns a 64-bit hash of each key (name, number).

  SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
  generators", OOPSLA 2014, figure 16), seeded by the name. It is vectorised:
  hashing 300 million strings would take minutes.
  """
  z = numbers.astype(np.uint64)
  z *= np.uint64(0x9e3779b97f4a7c15)  # Modulo 2**64, like all operations below.
  z += np.uint64(split_strings.stable_hash(name))
  for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
    z ^= z >> np.uint64(shift)
    z *= np.uint64(factor)
  z ^= z >> np.uint64(31)
  return z


def select_random(
    source: protocol.Source, count: int, *, name: str) -> protocol.Source:
  """Returns the `count` examples with the lowest hashes, in source order.

  Raises:
    ValueError: if there are fewer than `count`.
  """
  check_count(count, len(source), name=name)
  if count == len(source):
    return source
  hashes = hash_keys(source)
  if (groups := split_strings.groups(source)) is not None:
    return split_strings.Subset.where(source, np.isin(
        np.arange(len(hashes)), np.lexsort((hashes, groups))[:count]))
  threshold = np.partition(hashes, count - 1)[count - 1]
  chosen = hashes < threshold
  # A key may occur twice, as in 'train+train': take as many as are missing.
  equal = np.flatnonzero(hashes == threshold)
  chosen[equal[:count - np.count_nonzero(chosen)]] = True
  return split_strings.Subset.where(source, chosen)


def check_count(count: int, length: int, *, name: str) -> None:
  """Raises a ValueError for a subset larger than its split."""
  if count > length:
    raise ValueError(
        f'data.num_examples is {count:,}, but {name} has {length:,}.')


def hash_keys(
    source: protocol.Source, *, prefix: str = '',
) -> UInt64[np.ndarray, 'examples']:
  """Returns the hash of every key; numbered sources are vectorised.

  `prefix` is put before keys that are not numbered.
  """
  hashes = []
  for leaf, indices in split_strings.leaves(source):
    if leaf.numbering is not None:
      name, offset = leaf.numbering
      hashes.append(hash_numbers(name, indices + offset))
    else:
      hashes.append(split_strings.stable_hashes(
          (prefix + leaf.key(i) for i in indices.data), len(indices)))
  return np.concatenate(hashes)


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
