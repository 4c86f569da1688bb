"""Blocks of a few hundred examples: the unit of work of a search.

    fingerprint   block of a test set -> views of its images
    match         block of the source -> its near-duplicates of test images

Both are functions of plain records, which can be sent to other processes.
"""

from collections.abc import Sequence
import dataclasses
import typing
from typing import Any, Protocol

from jaxtyping import UInt64
import numpy as np

from vit_jax.data.fingerprints import hash_index
from vit_jax.data.images import threads
from vit_jax.data.splits import selection as selection_lib

SIZE = 512
_MAX_CANDIDATES = 8  # Test images compared with each example.


@dataclasses.dataclass(frozen=True)
class Block:
  """Examples `first` to `last - 1` of a selection."""
  selection: selection_lib.Selection
  first: int
  last: int


@dataclasses.dataclass(frozen=True)
class Pair:
  """An example of the source, and the test image it is most similar to.

  Attributes:
    index: index in the source.
    key: key in the source.
    against: name of the test set.
    against_index: index in the test set.
    against_key: key in the test set.
    similarity: correlation of the pixels, or cosine of the features.
    distance: differing bits, of 64.
    change: 'whole', 'crop', 'mirrored' or 'mirrored crop'; of features
      'alike' or 'alike mirrored'.
  """
  index: int
  key: str
  against: str
  against_index: int
  against_key: str
  similarity: float
  distance: int
  change: str


@dataclasses.dataclass(frozen=True)
class Matches:
  """Result of a block: pairs, comparisons, and reasons by unreadable key."""
  pairs: tuple[Pair, ...]
  num_compared: int
  unreadable: dict[str, str]


@dataclasses.dataclass(frozen=True, eq=False)
class Fingerprints:
  """Views of the test images of a block.

  Attributes:
    block: the examples.
    indices: indices of the readable ones.
    views: bits or features of each view of each readable image.
    unreadable: reasons by key.
  """
  block: Block
  indices: np.ndarray
  views: np.ndarray
  unreadable: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Candidate:
  """A query row and a test image's view with similar bits."""
  row: int
  image: int
  view: int
  distance: int


@dataclasses.dataclass(frozen=True, eq=False)
class TestIndex:
  """All test images, searchable by their bits.

  Attributes:
    index: bits of all views, image by image.
    num_views: views per image.
    blocks: blocks of the test sets.
    starts: first image of each block.
    indices: index of each image within its selection.
    mean: mean feature, subtracted before comparison; None for pixels.
    features: unit features of each view of each image; None for pixels.
  """
  index: hash_index.Index
  num_views: int
  blocks: tuple[Block, ...]
  starts: np.ndarray
  indices: np.ndarray
  mean: np.ndarray | None = None
  features: np.ndarray | None = None

  def candidates(self, bits: UInt64[np.ndarray, '_']) -> list[Candidate]:
    """Returns the nearest test images of each query, nearest first."""
    matches = self.index.match(bits)
    images, views = np.divmod(
        self.index.first[matches.entry], self.num_views)
    result: list[Candidate] = []
    seen: dict[int, set[int]] = {}
    for row, image, view, distance in zip(
        matches.query.tolist(), images.tolist(), views.tolist(),
        matches.distance.tolist()):
      of_row = seen.setdefault(row, set())
      if image not in of_row and len(of_row) < _MAX_CANDIDATES:
        of_row.add(image)
        result.append(Candidate(row, image, view, distance))
    return result

  def locate(self, image: int) -> tuple[selection_lib.Selection, int]:
    """Returns the selection of an image, and its index there."""
    block = int(np.searchsorted(self.starts, image, side='right')) - 1
    return self.blocks[block].selection, int(self.indices[image])


@typing.runtime_checkable
class Method(Protocol):
  """A way to compare images; a plain record that workers receive."""

  def read(self, image: Any) -> Any:
    """Decodes an image; called in threads."""
    ...

  def views(self, images: Sequence[Any]) -> np.ndarray:
    """Returns bits or features [images, views, ...] of test images."""
    ...

  def build_index(self, parts: Sequence[Fingerprints]) -> TestIndex:
    """Returns the index of all test images."""
    ...

  def queries(
      self, images: Sequence[Any], tests: TestIndex,
  ) -> tuple[UInt64[np.ndarray, '_'], Sequence[np.ndarray]]:
    """Returns the bits of source images, and what `similarity` needs."""
    ...

  def similarity(
      self, query: np.ndarray, candidate: Candidate, tests: TestIndex,
  ) -> float:
    """Compares a query with a candidate."""
    ...

  def is_near_duplicate(self, similarity: float) -> bool:
    """Whether the similarity is high enough."""
    ...

  def change(self, view: int) -> str:
    """Returns the name of a view, for `Pair.change`."""
    ...


def split(selection: selection_lib.Selection) -> list[Block]:
  """Returns the blocks of a selection."""
  return [Block(selection, *ends)
          for ends in selection_lib.ranges(len(selection.open()), SIZE)]


def fingerprint(block: Block, method: Method) -> Fingerprints:
  """Returns the views of a block of test images."""
  images, indices, unreadable = _read(block, method)
  views = method.views(images) if images else np.zeros(0)
  return Fingerprints(block, indices, views, unreadable)


def build_index(parts: Sequence[Fingerprints], method: Method) -> TestIndex:
  """Returns the index of all test images, independent of the order of parts.

  Raises:
    ValueError: if no test image could be read.
  """
  parts = sorted((part for part in parts if len(part.indices)),
                 key=lambda p: (p.block.selection.name, p.block.first))
  if not parts:
    raise ValueError('No image of --against could be read.')
  return method.build_index(parts)


def make_index(
    parts: Sequence[Fingerprints], bits: UInt64[np.ndarray, 'images views'], *,
    max_distance: int, mean: np.ndarray | None = None,
    features: np.ndarray | None = None,
) -> TestIndex:
  """Returns an index of `bits`, in the order of the parts."""
  lengths = [len(part.indices) for part in parts]
  return TestIndex(
      hash_index.Index(bits.ravel(), max_distance=max_distance), bits.shape[1],
      tuple(part.block for part in parts), np.cumsum([0, *lengths[:-1]]),
      np.concatenate([part.indices for part in parts]), mean, features)


def match(block: Block, tests: TestIndex, method: Method) -> Matches:
  """Returns the near-duplicates of test images in a block of the source."""
  images, indices, unreadable = _read(block, method)
  if not images:
    return Matches((), 0, unreadable)
  bits, queries = method.queries(images, tests)
  candidates = tests.candidates(bits)
  best: dict[int, tuple[float, Candidate]] = {}
  for candidate in candidates:
    value = method.similarity(queries[candidate.row], candidate, tests)
    if method.is_near_duplicate(value) and (
        candidate.row not in best or value > best[candidate.row][0]):
      best[candidate.row] = value, candidate
  source, pairs = block.selection.open().source, []
  for row, (value, candidate) in best.items():
    index = int(indices[row])
    selection, place = tests.locate(candidate.image)
    pairs.append(Pair(
        index, source.key(index), selection.name, place,
        selection.open().source.key(place), value, candidate.distance,
        method.change(candidate.view)))
  return Matches(tuple(pairs), len(candidates), unreadable)


def _read(
    block: Block, method: Method,
) -> tuple[list[Any], np.ndarray, dict[str, str]]:
  """Returns readable images, their indices, and reasons for the others."""
  dataset = block.selection.open()
  images, indices, unreadable = [], [], {}
  for chunk in threads.read_chunks(
      range(block.first, block.last),
      lambda index: method.read(dataset[index]['image']), size=SIZE,
      errors=(OSError, ValueError)):
    for index, image in chunk:
      if isinstance(image, Exception):
        key = f'{block.selection.name} {dataset.source.key(index)}'
        unreadable[key] = str(image)
      else:
        images.append(image)
        indices.append(index)
  return images, np.array(indices, np.int64), unreadable
