"""Finds pairs of 64-bit fingerprints within a Hamming distance.

Fingerprints are split into 4 bands of 16 bits. If two differ in at most d bits,
they differ in at most d // 4 bits of some band (pigeonhole principle), so each
band is looked up in a table of 65,536 buckets: 17 buckets per band for up to 7
bits, 137 for 8 to 11. Bands take every fourth bit, so that each has its share
of the low frequencies, which are the most informative.
"""

import dataclasses
import functools
import itertools

from jaxtyping import Int, UInt64
import numpy as np

NUM_BANDS = 4
BAND_BITS = 16
MAX_DISTANCE = 11  # A distance of 12 would need 697 buckets per band.


@dataclasses.dataclass(frozen=True, eq=False)
class Matches:
  """Pairs within the distance, each once, ordered by query and distance."""
  query: Int[np.ndarray, 'pairs']
  entry: Int[np.ndarray, 'pairs']
  distance: Int[np.ndarray, 'pairs']


def split_bands(bits: UInt64[np.ndarray, '_']) -> list[np.ndarray]:
  """Returns four 16-bit arrays; band b has bits b, b + 4, b + 8, ..."""
  spread = np.unpackbits(
      np.ascontiguousarray(bits).view(np.uint8).reshape(-1, 8), axis=1,
      bitorder='little')
  return [np.packbits(spread[:, band::NUM_BANDS], axis=1, bitorder='little')
          .copy().view('<u2')[:, 0] for band in range(NUM_BANDS)]


@functools.cache
def flips(radius: int) -> np.ndarray:
  """Returns all 16-bit numbers with at most `radius` bits set."""
  return np.array(
      [sum(1 << bit for bit in chosen) for count in range(radius + 1)
       for chosen in itertools.combinations(range(BAND_BITS), count)],
      np.uint16)


class Index:
  """Search index of fingerprints.

  A bucket with more than `max_bucket` fingerprints is truncated, because bits
  shared by thousands of images are not informative; the others are still found
  by their other bands.

  Attributes:
    bits: distinct fingerprints.
    first: index of the first occurrence of each in the input.
  """

  def __init__(
      self, bits: UInt64[np.ndarray, '_'], *, max_distance: int = 7,
      max_bucket: int = 1_000):
    assert 0 <= max_distance <= MAX_DISTANCE, max_distance
    self.bits, self.first = np.unique(bits, return_index=True)
    self._max_distance = max_distance
    self._max_bucket = max_bucket
    self._masks = flips(max_distance // NUM_BANDS)
    # Entries in the order of each band, and the start of each bucket.
    self._bands = []
    for band in split_bands(self.bits):
      order = np.argsort(band, kind='stable')
      self._bands.append((order, np.searchsorted(
          band[order], np.arange(2**BAND_BITS + 1))))

  def match(self, queries: UInt64[np.ndarray, '_']) -> Matches:
    """Returns all pairs of a query and an entry of `bits`."""
    found = []
    for band, (order, starts) in zip(split_bands(queries), self._bands):
      for mask in self._masks:
        bucket = (band ^ mask).astype(int)
        first = starts[bucket]
        size = np.minimum(starts[bucket + 1] - first, self._max_bucket)
        query = np.repeat(np.arange(len(queries)), size)
        within = np.arange(len(query)) - np.repeat(np.cumsum(size) - size, size)
        entry = order[np.repeat(first, size) + within]
        distance = np.bitwise_count(queries[query] ^ self.bits[entry])
        near = distance <= self._max_distance
        # Pairs as query * len(self.bits) + entry.
        found.append(query[near] * len(self.bits) + entry[near])
    # Several bands may find the same pair.
    pairs = np.unique(np.concatenate(found))
    query, entry = np.divmod(pairs, len(self.bits))
    distance = np.bitwise_count(
        queries[query] ^ self.bits[entry]).astype(np.int64)
    order = np.lexsort((entry, distance, query))
    return Matches(query[order], entry[order], distance[order])
