"""Blocks of a few hundred examples: the unit of work of a search.

    fingerprint   block of a test set -> views of its images
    match         block of the source -> its near-duplicates of test images

Both are functions of plain records, which can be sent to other processes.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from vit_jax.data.fingerprints import hash_index
from vit_jax.data.images import threads
from vit_jax.data.splits import selection as selection_lib
from vit_jax.near_duplicates import index as index_lib
from vit_jax.near_duplicates import methods

SIZE = 512


@dataclasses.dataclass(frozen=True)
class Pair:
  """An example of the source, and the test image it is most similar to.

  Attributes:
    index, key: of the example in the source.
    against: name of the test set.
    against_index, against_key: of the image in the test set.
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
  """Pairs, number of comparisons, and reasons by unreadable key."""
  pairs: tuple[Pair, ...]
  num_compared: int
  unreadable: dict[str, str]


@dataclasses.dataclass(frozen=True, eq=False)
class Fingerprints:
  """Bits or features of each view of the readable test images of a block."""
  block: index_lib.Block
  indices: np.ndarray
  views: np.ndarray
  unreadable: dict[str, str]


def split(selection: selection_lib.Selection) -> list[index_lib.Block]:
  """Returns the blocks of a selection."""
  return [index_lib.Block(selection, *ends)
          for ends in selection_lib.ranges(len(selection.open()), SIZE)]


def fingerprint(block: index_lib.Block, method: methods.Method) -> Fingerprints:
  """Returns the views of a block of test images."""
  images, indices, unreadable = _read(block, method)
  views = method.views(images) if images else np.zeros(0)
  return Fingerprints(block, indices, views, unreadable)


def build_index(
    parts: Sequence[Fingerprints], method: methods.Method,
) -> index_lib.TestIndex:
  """Returns the index of all test images, independent of the order of parts.

  Raises:
    ValueError: if no test image could be read.
  """
  parts = sorted((part for part in parts if len(part.indices)),
                 key=lambda p: (p.block.selection.name, p.block.first))
  if not parts:
    raise ValueError('No image of --against could be read.')
  data = method.index_data(np.concatenate([part.views for part in parts]))
  lengths = [len(part.indices) for part in parts]
  return index_lib.TestIndex(
      data, hash_index.Index(
          data.bits.ravel(), max_distance=method.max_distance),
      tuple(part.block for part in parts), np.cumsum([0, *lengths[:-1]]),
      np.concatenate([part.indices for part in parts]))


def match(
    block: index_lib.Block, tests: index_lib.TestIndex, method: methods.Method,
) -> Matches:
  """Returns the near-duplicates of test images in a block of the source."""
  images, indices, unreadable = _read(block, method)
  if not images:
    return Matches((), 0, unreadable)
  bits, queries = method.queries(images, tests)
  candidates = tests.candidates(bits)
  best: dict[int, tuple[float, index_lib.Candidate]] = {}
  for candidate in candidates:
    value = method.similarity(queries[candidate.row], candidate, tests)
    if value >= method.min_similarity and (
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
    block: index_lib.Block, method: methods.Method,
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
