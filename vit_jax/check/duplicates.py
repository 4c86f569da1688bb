"""The same picture twice: the same bytes, or nearly the same pixels."""

from collections.abc import Iterator
import dataclasses

from jaxtyping import Float, Int
import numpy as np
from scipy import sparse

from vit_jax.check import scan as scan_lib
from vit_jax.data.fingerprints import hash_index
from vit_jax.data.fingerprints import perceptual_hash
from vit_jax.data.fingerprints import similarity

_QUERIES = 2**16  # Looked for at once.


@dataclasses.dataclass(frozen=True)
class Group:
  """Examples that show the same.

  Attributes:
    numbers: of the examples: first one of each label in each split, which is
      what a person must see, then the others; in their order.
    exact: whether all have the same bytes.
    similarity: of those in it that are least alike, of the pairs that were
      compared; 1 if exact.
    across: whether they are of several splits.
    same_across: whether some with the same bytes are.
    conflict: whether their labels differ.
  """
  numbers: tuple[int, ...]
  exact: bool
  similarity: float
  across: bool
  same_across: bool
  conflict: bool

  @property
  def words(self) -> list[str]:
    """What is to be said of it, in a few words each."""
    return [
        'all the same file' if self.exact
        else f'alike, {self.similarity:.3f} at least',
        *['labels differ'] * self.conflict,
        *['in several splits' + ', the same file' * (
            self.same_across and not self.exact)] * self.across]


@dataclasses.dataclass(frozen=True, eq=False)
class _Pairs:
  one: Int[np.ndarray, 'pairs']
  other: Int[np.ndarray, 'pairs']
  similarity: Float[np.ndarray, 'pairs']


def find(
    scan: scan_lib.Scan, likeness: similarity.Likeness) -> tuple[Group, ...]:
  """Returns groups of duplicates, the most harmful first.

  First those of different labels and of several splits, then of either; the
  same bytes before near-duplicates, and those most alike first.
  """
  readable = np.flatnonzero(scan.readable)
  _, first, file = np.unique(
      scan.digests[readable], return_index=True, return_inverse=True)
  files = readable[first]  # One example of each different file.
  pairs = _near(scan, files, likeness)
  _, group = sparse.csgraph.connected_components(
      sparse.coo_array((np.ones(len(pairs.one)), (pairs.one, pairs.other)),
                       shape=(len(files), len(files))), directed=False)
  least = np.ones(len(files))
  np.minimum.at(least, group[pairs.one], pairs.similarity)
  of_example = group[file]
  order = np.argsort(of_example, kind='stable')
  cuts = np.flatnonzero(np.diff(of_example[order])) + 1
  groups = [_group(scan, readable[part], float(least[of_example[part[0]]]))
            for part in np.split(order, cuts) if len(part) > 1]
  return tuple(sorted(groups, key=lambda g: (
      -(g.conflict + g.across), not g.conflict, not g.exact, -g.similarity,
      g.numbers)))


def of_example(
    groups: tuple[Group, ...], count: int) -> Int[np.ndarray, 'examples']:
  """Returns the group of each example; those of none have one of their own."""
  result = np.arange(count)
  for group in groups:
    result[list(group.numbers)] = group.numbers[0]
  return result


def _group(
    scan: scan_lib.Scan, numbers: Int[np.ndarray, '_'], least: float) -> Group:
  splits = scan.asked.split_numbers()[numbers]
  labels = scan.labels[numbers]
  digests = scan.digests[numbers].tolist()
  _, first = np.unique(np.stack([splits, labels]), axis=1, return_index=True)
  others = np.delete(np.arange(len(numbers)), first)
  files = set(zip(digests, splits.tolist()))
  return Group(
      tuple(numbers[np.concatenate([np.sort(first), others])].tolist()),
      len(set(digests)) == 1, least, len(set(splits.tolist())) > 1,
      len(files) > len(set(digests)),
      len(set(labels[labels >= 0].tolist())) > 1)


def _near(
    scan: scan_lib.Scan, files: Int[np.ndarray, 'files'],
    likeness: similarity.Likeness,
) -> _Pairs:
  """Returns the pairs of files whose pixels are alike."""
  bits = scan.bits[files]
  found = [(a, b, _alike(scan.views[files[a]], scan.views[files[b]], flip))
           for a, b, flip in _candidates(bits, likeness.max_distance)]
  kept = [pair for pair in found if pair[2] >= likeness.min_similarity]
  one, other, alike = zip(*kept) if kept else ((), (), ())
  return _Pairs(np.array(one, np.int64), np.array(other, np.int64),
                np.array(alike, np.float64))


def _candidates(
    bits: np.ndarray, max_distance: int,
) -> Iterator[tuple[int, int, bool]]:
  """Yields pairs of files that are near by their bits, and whether mirrored.

  Of many with the same bits, each is paired with the first.
  """
  index = hash_index.Index(bits, max_distance=max_distance)
  place = np.searchsorted(index.bits, bits)
  for a, b in zip(index.first[place].tolist(), range(len(bits))):
    if a != b:
      yield a, b, False
  for flip in (False, True):
    queries = perceptual_hash.mirrored(index.bits) if flip else index.bits
    for start in range(0, len(queries), _QUERIES):
      matches = index.match(queries[start:start + _QUERIES])
      query = matches.query + start
      once = query < matches.entry
      for a, b in zip(index.first[query[once]].tolist(),
                      index.first[matches.entry[once]].tolist()):
        yield a, b, flip


def _alike(one: np.ndarray, other: np.ndarray, flip: bool) -> float:
  other = other[:, ::-1] if flip else other
  return similarity.similarity(
      one.astype(np.float32), other.astype(np.float32))
