"""Groups of duplicates: identical bytes, or nearly identical pixels."""

from collections.abc import Iterator
import dataclasses

from jaxtyping import Int
import numpy as np
from scipy import sparse

from vit_jax.extras.curation import hash_index
from vit_jax.extras.curation import scan as scan_lib
from vit_jax.extras.curation import similarity

_QUERIES = 2**12  # Queries per search, to bound memory.


@dataclasses.dataclass(frozen=True)
class DuplicateGroup:
  """Examples that show the same image.

  Attributes:
    examples: one example for each label in each split first, then the others.
    identical: all examples have the same bytes.
    min_similarity: lowest pixel correlation of the compared pairs.
    across_splits: the group has examples of several splits.
    identical_across_splits: several splits have the same bytes.
    labels_differ: the group has several labels.
  """
  examples: tuple[scan_lib.Example, ...]
  identical: bool
  min_similarity: float
  across_splits: bool
  identical_across_splits: bool
  labels_differ: bool

  @property
  def description(self) -> str:
    """Short text for tables and captions."""
    across = 'in several splits'
    if self.identical_across_splits and not self.identical:
      across += ' with identical bytes'
    return '; '.join([
        'identical bytes' if self.identical
        else f'similarity at least {self.min_similarity:.3f}',
        *['labels differ'] * self.labels_differ,
        *[across] * self.across_splits])


def find(
    scan: scan_lib.Scan, thresholds: similarity.Thresholds,
) -> tuple[DuplicateGroup, ...]:
  """Returns groups of duplicates, the most harmful first.

  First come groups with different labels in several splits, then groups with
  one of the two. Identical images precede similar ones, most similar first.
  """
  readable = np.array(list(scan.records), np.int64)
  _, first, file = np.unique(
      np.array([r.digest for r in scan.records.values()], np.uint64),
      return_index=True, return_inverse=True)
  files = readable[first]  # One example of each distinct file.
  pairs = _similar_files(scan, files, thresholds)
  one, other = (np.array([pair[i] for pair in pairs], np.int64)
                for i in range(2))
  _, group_of_file = sparse.csgraph.connected_components(
      sparse.coo_array((np.ones(len(pairs)), (one, other)),
                       shape=(len(files), len(files))), directed=False)
  lowest = np.ones(len(files))
  np.minimum.at(lowest, group_of_file[one], [pair[2] for pair in pairs])
  group = group_of_file[file]
  order = np.argsort(group, kind='stable')
  boundaries = np.flatnonzero(np.diff(group[order])) + 1
  groups = [_group(scan, readable[part].tolist(), lowest[group[part[0]]])
            for part in np.split(order, boundaries) if len(part) > 1]
  return tuple(sorted(groups, key=lambda g: (
      -(g.labels_differ + g.across_splits), not g.labels_differ,
      not g.identical, -g.min_similarity, g.examples[0].number)))


def _group(
    scan: scan_lib.Scan, numbers: list[int], lowest: float,
) -> DuplicateGroup:
  first: dict[tuple[str, str], scan_lib.Example] = {}
  others = []
  for example in map(scan.example, numbers):
    if first.setdefault((example.split, example.label), example) != example:
      others.append(example)
  examples = (*first.values(), *others)
  files = {(scan.records[e.number].digest, e.split) for e in examples}
  digests = {digest for digest, _ in files}
  return DuplicateGroup(
      examples, identical=len(digests) == 1, min_similarity=float(lowest),
      across_splits=len({split for _, split in files}) > 1,
      identical_across_splits=len(files) > len(digests),
      labels_differ=len({scan.labels[i] for i in numbers} - {None}) > 1)


def _similar_files(
    scan: scan_lib.Scan, files: Int[np.ndarray, 'files'],
    thresholds: similarity.Thresholds,
) -> list[tuple[int, int, float]]:
  """Returns pairs of files with similar pixels, and their similarity."""
  records = [scan.records[number] for number in files.tolist()]
  views = [record.view.astype(np.float32) for record in records]
  pairs = []
  for one, other, mirrored in _candidates(
      np.array([record.hash for record in records], np.uint64),
      thresholds.max_distance):
    value = similarity.correlation(
        views[one], views[other][:, ::-1] if mirrored else views[other])
    if value >= thresholds.min_similarity:
      pairs.append((one, other, value))
  return pairs


def _candidates(
    hashes: np.ndarray, max_distance: int,
) -> Iterator[tuple[int, int, bool]]:
  """Yields pairs of files with similar hashes, and whether one is mirrored.

  Files with the same hash are paired with the first of them only.
  """
  index = hash_index.Index(hashes, max_distance=max_distance)
  place = np.searchsorted(index.bits, hashes)
  for one, other in zip(index.first[place].tolist(), range(len(hashes))):
    if one != other:
      yield one, other, False
  for mirrored in (False, True):
    queries = similarity.mirrored(index.bits) if mirrored else index.bits
    for start in range(0, len(queries), _QUERIES):
      matches = index.match(queries[start:start + _QUERIES])
      query = matches.query + start
      once = query < matches.entry
      for one, other in zip(index.first[query[once]].tolist(),
                            index.first[matches.entry[once]].tolist()):
        yield one, other, mirrored
