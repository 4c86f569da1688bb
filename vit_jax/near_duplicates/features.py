"""Near-duplicates by the features of a model: `deduplicate --model`.

Features, minus their mean over the test sets, are hashed to 64 bits: the signs
of random projections (Charikar, "Similarity estimation techniques from
rounding algorithms", STOC 2002). Two vectors at an angle a differ in a share
of a / pi of the bits: 6.5 of 64 for a cosine of 0.95. Candidates with similar
bits are compared by cosine.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from jaxtyping import Float32, UInt64
import numpy as np
from PIL import Image

from vit_jax import nearest_neighbours
from vit_jax.data.fingerprints import hash_index
from vit_jax.data.images import decode
from vit_jax.near_duplicates import blocks

# Maps images to one row of features each; it is sent to other processes.
Embed = Callable[[list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class FeatureMethod:
  """A `blocks.Method` that compares features.

  The views of a test image are the image and its mirror image.

  Attributes:
    embed: the model.
    min_similarity: lowest cosine of the features of a near-duplicate.
  """
  embed: Embed
  min_similarity: float = 0.95

  def __post_init__(self):
    if not 0 < self.min_similarity <= 1:
      raise ValueError(
          f'--min-cosine must be in (0, 1]; got {self.min_similarity}.')

  def read(self, image: Any) -> Image.Image:
    return decode.decode(image, channels=3)

  def views(self, images: Sequence[Image.Image]) -> np.ndarray:
    mirrored = [image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
                for image in images]
    return np.stack(np.split(self._features([*images, *mirrored]), 2), axis=1)

  def build_index(
      self, parts: Sequence[blocks.Fingerprints]) -> blocks.TestIndex:
    features = np.concatenate([part.views for part in parts])
    mean = features.mean(axis=(0, 1))
    features = nearest_neighbours.unit(features - mean)
    bits = np.stack([random_projection_bits(features[:, view])
                     for view in range(2)], axis=1)
    return blocks.make_index(
        parts, bits, max_distance=hash_index.MAX_DISTANCE, mean=mean,
        features=features)

  def queries(
      self, images: Sequence[Image.Image], tests: blocks.TestIndex,
  ) -> tuple[UInt64[np.ndarray, '_'], Sequence[np.ndarray]]:
    features = nearest_neighbours.unit(self._features(images) - tests.mean)
    return random_projection_bits(features), list(features)

  def similarity(
      self, query: np.ndarray, candidate: blocks.Candidate,
      tests: blocks.TestIndex,
  ) -> float:
    assert tests.features is not None
    return float(query @ tests.features[candidate.image, candidate.view])

  def is_near_duplicate(self, similarity: float) -> bool:
    return similarity >= self.min_similarity

  def change(self, view: int) -> str:
    return 'alike' + ' mirrored' * view

  def _features(
      self, images: Sequence[Image.Image]) -> Float32[np.ndarray, 'rows width']:
    return np.asarray(self.embed(list(images)), np.float32)


def random_projection_bits(
    features: Float32[np.ndarray, 'rows width'],
) -> UInt64[np.ndarray, 'rows']:
  """Returns the signs of 64 random projections of each row."""
  planes = np.random.default_rng(0).standard_normal(
      (features.shape[1], 64), np.float32)
  packed = np.packbits(features @ planes > 0, axis=1, bitorder='little')
  return np.ascontiguousarray(packed).view('<u8')[:, 0]
