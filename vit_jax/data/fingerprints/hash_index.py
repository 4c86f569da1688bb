"""Which of many fingerprints are near which others, without trying all pairs.

64 bits are 4 bands of 16. Where two fingerprints differ in at most d bits, some
band differs in at most d // 4 of them (else each differed in more, and all
together in more than d: pigeonhole). So for each band, those are compared whose
bands are that near, found by a table of 65,536 places. Bands take every fourth
bit, so that each has its share of low frequencies, which tell the most.

With 7 bits, 17 places of each band are looked at (the same, and 16 of one bit
less or more); with 8 to 11, 137.
"""

from collections.abc import Iterator
import dataclasses
import functools
import itertools

from jaxtyping import Int, UInt64
import numpy as np

NUM_BANDS = 4
BAND_BITS = 16
MAX_DISTANCE = 11  # Beyond, 697 places of each band: no longer a short cut.
# Compared at once: what bounds the memory, at some 40 bytes each.
_CHUNK = 2**20


@dataclasses.dataclass(frozen=True, eq=False)
class Matches:
  """Pairs within the distance, each once, in the order of the queries."""
  query: Int[np.ndarray, 'pairs']
  entry: Int[np.ndarray, 'pairs']
  distance: Int[np.ndarray, 'pairs']


def split_bands(bits: UInt64[np.ndarray, '_']) -> list[np.ndarray]:
  """Returns four arrays of 16 bits; band b has bits b, b + 4, b + 8, ..."""
  spread = np.unpackbits(
      np.ascontiguousarray(bits).view(np.uint8).reshape(-1, 8), axis=1,
      bitorder='little')
  return [np.packbits(spread[:, band::NUM_BANDS], axis=1, bitorder='little')
          .copy().view('<u2')[:, 0] for band in range(NUM_BANDS)]


@functools.cache
def flips(radius: int) -> np.ndarray:
  """Returns every 16 bits of which at most `radius` are set."""
  return np.array(
      [sum(1 << bit for bit in chosen) for count in range(radius + 1)
       for chosen in itertools.combinations(range(BAND_BITS), count)],
      np.uint16)


def check_distance(bits: int) -> None:
  """Raises a ValueError for a distance that bands are no short cut to."""
  if not 0 <= bits <= MAX_DISTANCE:
    raise ValueError(
        f'The distance must be from 0 to {MAX_DISTANCE} bits of 64; got '
        f'{bits}. Pictures without any relation are 32 apart.')


class Index:
  """Fingerprints, laid out by their bands.

  Many the same are kept once. A place of a band with more than `max_place`
  different ones (what a thousand pictures have in common tells nothing) is cut
  to so many: these are then found by their other bands alone.

  Attributes:
    bits: the different fingerprints.
    first: the place of each among those that were given.
    crowded: how many were cut from places.
  """

  def __init__(
      self, bits: UInt64[np.ndarray, '_'], *, max_distance: int = 7,
      max_place: int = 1_000):
    check_distance(max_distance)
    self.bits, self.first = np.unique(bits, return_index=True)
    self._max_distance = max_distance
    self._radius = max_distance // NUM_BANDS
    self._places = []
    self.crowded = 0
    for band in split_bands(self.bits):
      counts = np.bincount(band, minlength=2**BAND_BITS)
      starts = np.cumsum(counts) - counts
      kept = np.minimum(counts, max_place)
      self.crowded += int((counts - kept).sum())
      order = np.argsort(band, kind='stable').astype(np.int32)
      self._places.append((order, starts, kept))

  def match(self, queries: UInt64[np.ndarray, '_']) -> Matches:
    """Returns all pairs of a query and one of `bits` within the distance."""
    found = [pairs for band in range(NUM_BANDS)
             for pairs in self._match_band(queries, band)]
    # Several bands find the same pair.
    pairs = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))
    query, entry = np.divmod(pairs, len(self.bits))
    distance = np.bitwise_count(
        queries[query] ^ self.bits[entry]).astype(np.int64)
    order = np.lexsort((entry, distance, query))
    return Matches(query[order], entry[order], distance[order])

  def _match_band(
      self, queries: UInt64[np.ndarray, '_'], band: int,
  ) -> Iterator[Int[np.ndarray, '_']]:
    """Yields pairs as numbers: query * entries + entry."""
    order, starts, counts = self._places[band]
    masks = flips(self._radius)
    places = (split_bands(queries)[band][:, None] ^ masks).ravel()
    queried = np.repeat(np.arange(len(queries)), len(masks))
    sizes = counts[places]
    used = np.flatnonzero(sizes)
    places, queried, sizes = places[used], queried[used], sizes[used]
    for first, last in _chunks(np.cumsum(sizes)):
      size = sizes[first:last]
      ends = np.cumsum(size)
      within = np.arange(ends[-1]) - np.repeat(ends - size, size)
      entry = order[np.repeat(starts[places[first:last]], size) + within]
      query = np.repeat(queried[first:last], size)
      distance = np.bitwise_count(queries[query] ^ self.bits[entry])
      near = np.flatnonzero(distance <= self._max_distance)
      yield query[near] * len(self.bits) + entry[near]


def _chunks(ends: np.ndarray) -> Iterator[tuple[int, int]]:
  """Yields ranges of places that hold about as many as are compared at once."""
  first = 0
  while first < len(ends):
    done = int(ends[first - 1]) if first else 0
    last = max(first + 1, int(np.searchsorted(ends, done + _CHUNK)))
    yield first, last
    first = last
