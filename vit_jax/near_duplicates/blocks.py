"""What is done to a few hundred examples at a time: the same wherever it runs.

  fingerprint   examples of a test set -> fingerprints of all their crops
  gather        those of all test sets -> what is searched
  match         examples of the source -> those that are near-duplicates

All are functions of plain records, which travel to other processes. These here
are of pixels; `features` has the same three of what a model makes of them.
"""

from collections.abc import Callable
from concurrent import futures
import dataclasses
import functools
import os
from typing import Any

from jaxtyping import UInt8, UInt64
import numpy as np

from vit_jax.data.fingerprints import hash_index
from vit_jax.data.fingerprints import perceptual_hash as perceptual_hash_lib
from vit_jax.data.fingerprints import similarity
from vit_jax.data.splits import selection as selection_lib

SIZE = 512  # Examples of a block.
# Of an example, the nearest test images by fingerprint that are looked at.
_CANDIDATES = 8
_THREADS = min(8, os.cpu_count() or 1)  # Pillow decodes without the lock.


@dataclasses.dataclass(frozen=True)
class Block:
  """Some examples of a selection: those from `first` to `last` - 1."""
  selection: selection_lib.Selection
  first: int
  last: int


@dataclasses.dataclass(frozen=True, eq=False)
class Fingerprints:
  """Those of a block of a test set.

  Attributes:
    block: of which examples.
    bits: of each example, each window and each mirrored window.
    indices: of the examples that could be read.
    unreadable: why others could not, by key.
  """
  block: Block
  bits: UInt64[np.ndarray, 'examples views']
  indices: np.ndarray
  unreadable: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Pair:
  """An example of the source, and what it is a near-duplicate of.

  Attributes:
    index: of the example.
    key: of the example.
    against: the selection of the other.
    against_index: its index there.
    against_key: its key there.
    similarity: correlation of the pixels, or cosine of the features.
    distance: bits that differ, of 64.
    change: 'whole', 'crop', 'mirrored', 'mirrored crop'; of features 'alike'
      or 'alike mirrored'.
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
class Found:
  """What came of a block of the source."""
  pairs: tuple[Pair, ...]
  candidates: int
  unreadable: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Method:
  """A way to find near-duplicates: the three functions, and their settings.

  Attributes:
    fingerprint: of a block of a test set; (block, settings).
    gather: all of these, to be searched; (parts, settings).
    match: the near-duplicates in a block of the source; (block, what was
      gathered, settings).
    settings: what counts as the same.
  """
  fingerprint: Callable[..., Any]
  gather: Callable[..., Any]
  match: Callable[..., Found]
  settings: Any


@dataclasses.dataclass(frozen=True)
class Settings(similarity.Likeness):
  """What counts as a near-duplicate.

  Attributes:
    crops: whether crops of test images are looked for.
  """
  crops: bool = True

  @property
  def windows(self) -> tuple[perceptual_hash_lib.Window, ...]:
    """The parts of a test image that are looked for."""
    return (perceptual_hash_lib.crops() if self.crops
            else (perceptual_hash_lib.WHOLE,))


def split(selection: selection_lib.Selection) -> list[Block]:
  """Returns the blocks of a selection."""
  return [Block(selection, *ends)
          for ends in selection_lib.ranges(len(selection.open()), SIZE)]


def fingerprint(block: Block, settings: Settings) -> Fingerprints:
  """Returns the fingerprints of test images."""
  thumbnails, indices, unreadable = _thumbnails(block)
  bits = perceptual_hash_lib.fingerprints(thumbnails, settings.windows)
  flipped = perceptual_hash_lib.mirrored(bits)
  flat = perceptual_hash_lib.is_flat(thumbnails)
  flipped[flat] = bits[flat]
  return Fingerprints(
      block, np.concatenate([bits, flipped], axis=1), indices, unreadable)


@dataclasses.dataclass(frozen=True, eq=False)
class TestSets:
  """All test images, to be searched."""
  index: hash_index.Index
  blocks: tuple[Block, ...]
  starts: np.ndarray  # of each block among `indices`
  indices: np.ndarray  # in its selection, of each image
  views: int  # of each image

  def find(self, entry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns which image and which view of it an entry of the index is."""
    return np.divmod(self.index.first[entry], self.views)

  def locate(self, image: int) -> tuple[selection_lib.Selection, int]:
    """Returns the selection of an image, and its index there."""
    block = int(np.searchsorted(self.starts, image, side='right')) - 1
    return self.blocks[block].selection, int(self.indices[image])


def gather(parts: list[Fingerprints], settings: Settings) -> TestSets:
  """Returns what `match` searches, whatever the order of the parts."""
  parts = sorted(parts, key=lambda p: (p.block.selection.name, p.block.first))
  lengths = [len(part.indices) for part in parts]
  return TestSets(
      hash_index.Index(np.concatenate([p.bits.ravel() for p in parts]),
                       max_distance=settings.max_distance),
      tuple(part.block for part in parts),
      np.cumsum([0, *lengths[:-1]]),
      np.concatenate([part.indices for part in parts]),
      2 * len(settings.windows))


def match(block: Block, tests: TestSets, settings: Settings) -> Found:
  """Returns the examples of a block that are near-duplicates of test images."""
  thumbnails, indices, unreadable = _thumbnails(block)
  bits = perceptual_hash_lib.fingerprints(thumbnails)[:, 0]
  rows = candidates(tests, bits)
  best: dict[int, Pair] = {}
  for row, image, view, distance in rows:
    pair = _compare(
        thumbnails[row], int(indices[row]), block, tests, image, view,
        distance, settings)
    old = best.get(row)
    if pair.similarity >= settings.min_similarity and (
        old is None or pair.similarity > old.similarity):
      best[row] = pair
  return Found(tuple(best.values()), len(rows), unreadable)


def candidates(
    tests: TestSets, bits: UInt64[np.ndarray, '_'],
) -> list[tuple[int, int, int, int]]:
  """Returns (row, image, view, distance) of the nearest test images."""
  matches = tests.index.match(bits)
  images, views = tests.find(matches.entry)
  rows: list[tuple[int, int, int, int]] = []
  seen: dict[int, set[int]] = {}
  for row, image, view, distance in zip(  # The nearest of each row first.
      matches.query.tolist(), images.tolist(), views.tolist(),
      matches.distance.tolist()):
    of_row = seen.setdefault(row, set())
    if image not in of_row and len(of_row) < _CANDIDATES:
      of_row.add(image)
      rows.append((row, image, view, distance))
  return rows


def _compare(
    thumbnail: UInt8[np.ndarray, '64 64 3'], index: int, block: Block,
    tests: TestSets, image: int, view: int, distance: int, settings: Settings,
) -> Pair:
  windows = settings.windows
  mirrored, window = divmod(view, len(windows))
  selection, place = tests.locate(image)
  alike = similarity.similarity(
      similarity.view(thumbnail, perceptual_hash_lib.WHOLE, mirrored=False),
      similarity.view(_thumbnail(selection, place), windows[window],
                      mirrored=bool(mirrored)))
  return Pair(
      index, block.selection.open().source.key(index), selection.name, place,
      selection.open().source.key(place), alike, distance,
      ' '.join(['mirrored'] * mirrored + ['crop'] * (window > 0)) or 'whole')


@functools.lru_cache(maxsize=10_000)
def _thumbnail(
    selection: selection_lib.Selection, index: int,
) -> UInt8[np.ndarray, '64 64 3']:
  return perceptual_hash_lib.thumbnail(selection.open()[index]['image'])


def _thumbnails(
    block: Block) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
  """Returns thumbnails, the indices they are of, and what is unreadable."""
  found, indices, unreadable = read(block, perceptual_hash_lib.thumbnail)
  side = perceptual_hash_lib.SIDE
  return (np.array(found, np.uint8).reshape(-1, side, side, 3), indices,
          unreadable)


def read(
    block: Block, convert: Callable[[Any], Any],
) -> tuple[list[Any], np.ndarray, dict[str, str]]:
  """Returns converted images, their indices, and what is unreadable by key."""
  dataset = block.selection.open()

  def attempt(index: int) -> Any:
    try:
      return convert(dataset[index]['image'])
    except (OSError, ValueError) as error:
      return error

  with futures.ThreadPoolExecutor(_THREADS) as pool:
    results = list(pool.map(attempt, range(block.first, block.last)))
  good = [i for i, r in enumerate(results) if not isinstance(r, Exception)]
  return (
      [results[i] for i in good], np.array(good, np.int64) + block.first,
      {dataset.source.key(block.first + i): str(r)
       for i, r in enumerate(results) if isinstance(r, Exception)})


def by_pixels(settings: Settings) -> Method:
  """Returns this way to find near-duplicates."""
  return Method(fingerprint, gather, match, settings)
