"""Two ways to compare images: perceptual hash and pixels, or model features.

Features, minus their mean over the test sets, are hashed to 64 bits: the signs
of random projections (Charikar, "Similarity estimation techniques from
rounding algorithms", STOC 2002). Two vectors at an angle a differ in a share
of a / pi of the bits: 6.5 of 64 for a cosine of 0.95. Candidates with similar
bits are compared by cosine.

Methods are plain records that workers receive. Both have:

  max_distance, min_similarity   of near-duplicates
  read         decodes an image; called in threads
  views        bits or features [images, views, ...] of test images
  index_data   the bits of the views of all test images
  queries      the bits of source images, and what `similarity` needs
  similarity   compares a query with a candidate
  change       name of a view, for `search.Pair.change`
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

from jaxtyping import Float32, UInt8, UInt64
import numpy as np
from PIL import Image

from vit_jax import nearest_neighbours
from vit_jax.data.fingerprints import hash_index
from vit_jax.data.fingerprints import perceptual_hash
from vit_jax.data.fingerprints import similarity
from vit_jax.data.images import decode
from vit_jax.data.splits import selection as selection_lib
from vit_jax.near_duplicates import index as index_lib

# Maps images to one row of features each; it is sent to other processes.
Embed = Callable[[list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class PixelMethod(similarity.Likeness):
  """Compares pixels.

  The views of a test image are windows of it, then mirrored windows.

  Attributes:
    crops: also search for crops of test images.
  """
  crops: bool = True

  @property
  def windows(self) -> tuple[perceptual_hash.Window, ...]:
    """Searched windows of a test image; the first is the whole image."""
    return perceptual_hash.crops() if self.crops else (perceptual_hash.WHOLE,)

  def read(self, image: Any) -> UInt8[np.ndarray, '64 64 3']:
    return perceptual_hash.thumbnail(image)

  def views(self, images: Sequence[np.ndarray]) -> np.ndarray:
    thumbnails = np.stack(images)
    bits = perceptual_hash.fingerprints(thumbnails, self.windows)
    mirrored = perceptual_hash.mirrored(bits)
    flat = perceptual_hash.is_flat(thumbnails)
    mirrored[flat] = bits[flat]
    return np.concatenate([bits, mirrored], axis=1)

  def index_data(self, views: np.ndarray) -> index_lib.IndexData:
    return index_lib.IndexData(views)

  def queries(
      self, images: Sequence[np.ndarray], tests: index_lib.TestIndex,
  ) -> tuple[UInt64[np.ndarray, '_'], Sequence[np.ndarray]]:
    del tests
    return perceptual_hash.fingerprints(np.stack(images))[:, 0], images

  def similarity(
      self, query: np.ndarray, candidate: index_lib.Candidate,
      tests: index_lib.TestIndex,
  ) -> float:
    mirrored, window = divmod(candidate.view, len(self.windows))
    return similarity.similarity(
        similarity.view(query, perceptual_hash.WHOLE, mirrored=False),
        similarity.view(
            _thumbnail(*tests.locate(candidate.image)), self.windows[window],
            mirrored=bool(mirrored)))

  def change(self, view: int) -> str:
    mirrored, window = divmod(view, len(self.windows))
    return ' '.join(
        ['mirrored'] * mirrored + ['crop'] * (window > 0)) or 'whole'


@functools.lru_cache(maxsize=10_000)
def _thumbnail(
    selection: selection_lib.Selection, index: int,
) -> UInt8[np.ndarray, '64 64 3']:
  return perceptual_hash.thumbnail(selection.open()[index]['image'])


@dataclasses.dataclass(frozen=True)
class FeatureMethod:
  """Compares features.

  The views of a test image are the image and its mirror image.

  Attributes:
    embed: the model.
    min_similarity: lowest cosine of the features of a near-duplicate.
    max_distance: differing bits of candidates.
  """
  embed: Embed
  min_similarity: float = 0.95
  max_distance: int = hash_index.MAX_DISTANCE

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

  def index_data(self, views: np.ndarray) -> index_lib.IndexData:
    mean = views.mean(axis=(0, 1))
    features = nearest_neighbours.unit(views - mean)
    return index_lib.IndexData(random_projection_bits(features), mean, features)

  def queries(
      self, images: Sequence[Image.Image], tests: index_lib.TestIndex,
  ) -> tuple[UInt64[np.ndarray, '_'], Sequence[np.ndarray]]:
    features = nearest_neighbours.unit(
        self._features(images) - tests.data.mean)
    return random_projection_bits(features), list(features)

  def similarity(
      self, query: np.ndarray, candidate: index_lib.Candidate,
      tests: index_lib.TestIndex,
  ) -> float:
    assert tests.data.features is not None
    return float(query @ tests.data.features[candidate.image, candidate.view])

  def change(self, view: int) -> str:
    return 'alike' + ' mirrored' * view

  def _features(
      self, images: Sequence[Image.Image]) -> Float32[np.ndarray, 'rows width']:
    return np.asarray(self.embed(list(images)), np.float32)


Method = PixelMethod | FeatureMethod


def random_projection_bits(
    features: Float32[np.ndarray, '*rows width'],
) -> UInt64[np.ndarray, '*rows']:
  """Returns the signs of 64 random projections of each row."""
  planes = np.random.default_rng(0).standard_normal(
      (features.shape[-1], 64), np.float32)
  return perceptual_hash.pack(features @ planes > 0)
