"""Index of all test images."""

import dataclasses
from typing import NamedTuple

from jaxtyping import UInt64
import numpy as np

from vit_jax.data.fingerprints import hash_index
from vit_jax.data.splits import selection as selection_lib

_MAX_CANDIDATES = 8  # Test images compared with each example.


@dataclasses.dataclass(frozen=True)
class Block:
  """Examples `first` to `last - 1` of a selection."""
  selection: selection_lib.Selection
  first: int
  last: int


class Candidate(NamedTuple):
  """A query row and a test image's view with similar bits."""
  row: int
  image: int
  view: int
  distance: int


class IndexData(NamedTuple):
  """Bits of each view of each test image and, of features, their values."""
  bits: UInt64[np.ndarray, 'images views']
  mean: np.ndarray | None = None
  features: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class TestIndex:
  """All test images, searchable by their bits.

  Attributes:
    data: mean feature, and unit features of each view of each image.
    index: bits of all views, image by image.
    blocks: blocks of the test sets.
    starts: first image of each block.
    indices: index of each image within its selection.
  """
  data: IndexData
  index: hash_index.Index
  blocks: tuple[Block, ...]
  starts: np.ndarray
  indices: np.ndarray

  def candidates(self, bits: UInt64[np.ndarray, '_']) -> list[Candidate]:
    """Returns the nearest test images of each query, nearest first."""
    matches = self.index.match(bits)
    images, views = np.divmod(
        self.index.first[matches.entry], self.data.bits.shape[1])
    result: list[Candidate] = []
    seen: dict[int, set[int]] = {}
    for candidate in map(Candidate, matches.query.tolist(), images.tolist(),
                         views.tolist(), matches.distance.tolist()):
      of_row = seen.setdefault(candidate.row, set())
      if candidate.image not in of_row and len(of_row) < _MAX_CANDIDATES:
        of_row.add(candidate.image)
        result.append(candidate)
    return result

  def locate(self, image: int) -> tuple[selection_lib.Selection, int]:
    """Returns the selection of an image, and its index there."""
    block = int(np.searchsorted(self.starts, image, side='right')) - 1
    return self.blocks[block].selection, int(self.indices[image])
