"""Near-duplicates by what a model makes of pictures: `deduplicate --model`.

Finds what pixels do not show, another crop or another shot of the same thing;
how far that goes is the model's. Features, less their mean over the test sets,
become 64 bits, the sides of as many random planes that they lie on (Charikar,
"Similarity estimation techniques from rounding algorithms", STOC 2002): of two
at an angle a, each bit differs with probability a / pi, 6.5 of 64 where the
cosine is 0.95. What is near by bits is then compared by cosine.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

from jaxtyping import Float32, UInt64
import numpy as np
from PIL import Image

from vit_jax.data.fingerprints import hash_index
from vit_jax.data.images import decode
from vit_jax.near_duplicates import blocks

# Of pictures, to a row of features each; it travels to other processes.
Embed = Callable[[list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class Settings:
  """What counts as a near-duplicate.

  Attributes:
    embed: the model.
    min_cosine: the least cosine of the features.
  """
  embed: Embed
  min_cosine: float = 0.95

  def __post_init__(self):
    if not 0 < self.min_cosine <= 1:
      raise ValueError(
          f'The least cosine must lie in (0, 1]; got {self.min_cosine}.')


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
  """Those of a block of a test set.

  Attributes:
    block: of which examples.
    vectors: of each example, and of it mirrored.
    indices: of the examples that could be read.
    unreadable: why others could not, by key.
  """
  block: blocks.Block
  vectors: Float32[np.ndarray, 'examples 2 width']
  indices: np.ndarray
  unreadable: dict[str, str]


@dataclasses.dataclass(frozen=True, eq=False)
class TestSets:
  """All test images, to be searched.

  Attributes:
    images: by bits.
    mean: of the features.
    vectors: of each view of each image, of length 1.
  """
  images: blocks.TestSets
  mean: Float32[np.ndarray, 'width']
  vectors: Float32[np.ndarray, 'views width']


def bits_of(
    vectors: Float32[np.ndarray, 'rows width'],
) -> UInt64[np.ndarray, 'rows']:
  """Returns on which side of 64 planes each lies."""
  width = vectors.shape[1]
  planes = np.random.default_rng(0).standard_normal((width, 64), np.float32)
  packed = np.packbits(vectors @ planes > 0, axis=1, bitorder='little')
  return np.ascontiguousarray(packed).view('<u8')[:, 0]


def fingerprint(block: blocks.Block, settings: Settings) -> Features:
  """Returns the features of test images."""
  pictures, indices, unreadable = blocks.read(block, _decode)
  flipped = [p.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for p in pictures]
  vectors = (
      np.stack(np.split(_embed([*pictures, *flipped], settings), 2), axis=1)
      if pictures else np.zeros((0, 2, 0), np.float32))
  return Features(block, vectors, indices, unreadable)


def gather(parts: list[Features], settings: Settings) -> TestSets:
  """Returns what `match` searches, whatever the order of the parts."""
  del settings
  parts = sorted(parts, key=lambda p: (p.block.selection.name, p.block.first))
  rows = np.concatenate([part.vectors for part in parts if len(part.indices)])
  mean = rows.mean(axis=(0, 1))
  vectors = _unit(rows.reshape(-1, rows.shape[-1]), mean)
  lengths = [len(part.indices) for part in parts]
  return TestSets(
      blocks.TestSets(
          hash_index.Index(
              bits_of(vectors), max_distance=hash_index.MAX_DISTANCE),
          tuple(part.block for part in parts), np.cumsum([0, *lengths[:-1]]),
          np.concatenate([part.indices for part in parts]), 2),
      mean, vectors)


def match(
    block: blocks.Block, tests: TestSets, settings: Settings) -> blocks.Found:
  """Returns the examples of a block that are near-duplicates of test images."""
  pictures, indices, unreadable = blocks.read(block, _decode)
  if not pictures:
    return blocks.Found((), 0, unreadable)
  vectors = _unit(_embed(pictures, settings), tests.mean)
  rows = blocks.candidates(tests.images, bits_of(vectors))
  best: dict[int, blocks.Pair] = {}
  for row, image, view, distance in rows:
    cosine = float(vectors[row] @ tests.vectors[2 * image + view])
    if cosine >= settings.min_cosine and (
        row not in best or cosine > best[row].similarity):
      selection, place = tests.images.locate(image)
      index = int(indices[row])
      best[row] = blocks.Pair(
          index, block.selection.open().source.key(index), selection.name,
          place, selection.open().source.key(place), cosine, distance,
          'alike' + ' mirrored' * view)
  return blocks.Found(tuple(best.values()), len(rows), unreadable)


def by_features(settings: Settings) -> blocks.Method:
  """Returns this way to find near-duplicates."""
  return blocks.Method(fingerprint, gather, match, settings)


def _decode(image: Any) -> Image.Image:
  return decode.decode(image, channels=3)


def _embed(
    pictures: list[Any], settings: Settings,
) -> Float32[np.ndarray, 'rows width']:
  return np.asarray(settings.embed(pictures), np.float32)


def _unit(
    rows: Float32[np.ndarray, 'rows width'],
    mean: Float32[np.ndarray, 'width'],
) -> Float32[np.ndarray, 'rows width']:
  """Returns rows less their mean, of length 1."""
  rows = rows - mean
  return rows / np.maximum(
      np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
