"""Random subsets of a split.

A random subset has the examples whose keys have the lowest hashes or, with
groups, those of the groups with the lowest hashes. The choice depends on the
keys alone, so it is the same on every machine and smaller subsets are part of
larger ones: 9 million of 30 million of 90 million (ViT,
figure 4, https://arxiv.org/abs/2010.11929).
"""

from jaxtyping import Integer, UInt64
import numpy as np

from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError


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
    source: protocol.Source, count: int, *, name: str, planned: bool = False,
) -> protocol.Source:
  """Returns the `count` examples with the lowest hashes, in source order.

  Of a `planned` source, which may be large, these are the first.

  Raises:
    UserError: if there are fewer than `count`.
  """
  if count > len(source):
    raise UserError(
        f'data.num_examples is {count:,}, but {name} has {len(source):,}.')
  if count == len(source):
    return source
  if planned:
    return split_strings.Subset(((source, range(count)),))
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
