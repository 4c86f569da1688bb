"""The index finds the same pairs as comparing all pairs."""

import numpy as np
import pytest

from vit_jax.data.fingerprints import hash_index


def _near(count, seed):
  """Returns clusters of fingerprints that differ in a few bits."""
  rng = np.random.default_rng(seed)
  centres = np.random.default_rng(0).integers(0, 2**64, 5, dtype=np.uint64)
  bits = centres[rng.integers(0, 5, count)]
  for _ in range(9):
    bits = bits ^ (np.uint64(1) << rng.integers(0, 64, count).astype(np.uint64))
  return bits


@pytest.mark.parametrize('distance', [0, 3, 7, 11])
def test_exactly_the_pairs_within_the_distance_are_found_once(distance):
  tests, queries = _near(150, 1), _near(150, 2)
  queries[:5] = tests[:5]
  index = hash_index.Index(tests, max_distance=distance)
  found = index.match(queries)
  apart = np.bitwise_count(queries[:, None] ^ index.bits)
  expected = set(zip(*np.nonzero(apart <= distance)))
  got = list(zip(found.query, found.entry))
  assert len(got) == len(set(got))
  assert set(got) == expected and len(expected) >= 5
  assert (apart[found.query, found.entry] == found.distance).all()
  order = list(zip(found.query, found.distance))
  assert order == sorted(order)


def test_repeated_fingerprints_are_compared_once():
  index = hash_index.Index(np.full(1000, 5, np.uint64))
  assert len(index.match(np.array([5], np.uint64)).query) == 1
  assert index.first[0] == 0


def test_truncated_buckets_are_found_by_other_bands():
  # All share band 0, bits 0, 4, 8, ...; they differ in band 1.
  spread = sum(((np.arange(256, dtype=np.uint64) >> np.uint64(i))
                & np.uint64(1)) << np.uint64(4 * i + 1) for i in range(8))
  index = hash_index.Index(
      spread.astype(np.uint64), max_distance=0, max_bucket=16)
  assert len(index.match(index.bits).query) == 256


def test_too_large_distances_are_errors():
  with pytest.raises(ValueError, match='from 0 to 11 bits of 64; got 12'):
    hash_index.Index(np.zeros(1, np.uint64), max_distance=12)
