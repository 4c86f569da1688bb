"""Near-duplicates by perceptual hash and pixel correlation."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

from jaxtyping import UInt8, UInt64
import numpy as np

from vit_jax.data.fingerprints import perceptual_hash
from vit_jax.data.fingerprints import similarity
from vit_jax.data.splits import selection as selection_lib
from vit_jax.near_duplicates import blocks


@dataclasses.dataclass(frozen=True)
class PixelMethod(similarity.Likeness):
  """A `blocks.Method` that compares pixels.

  The views of a test image are windows of it, then mirrored windows.

  Attributes:
    crops: also search for crops of test images.
  """
  crops: bool = True

  @property
  def windows(self) -> tuple[perceptual_hash.Window, ...]:
    """Searched windows of a test image; the first is the whole image."""
    return (perceptual_hash.crops() if self.crops
            else (perceptual_hash.WHOLE,))

  def read(self, image: Any) -> UInt8[np.ndarray, '64 64 3']:
    return perceptual_hash.thumbnail(image)

  def views(self, images: Sequence[np.ndarray]) -> np.ndarray:
    thumbnails = np.stack(images)
    bits = perceptual_hash.fingerprints(thumbnails, self.windows)
    mirrored = perceptual_hash.mirrored(bits)
    flat = perceptual_hash.is_flat(thumbnails)
    mirrored[flat] = bits[flat]
    return np.concatenate([bits, mirrored], axis=1)

  def build_index(
      self, parts: Sequence[blocks.Fingerprints]) -> blocks.TestIndex:
    return blocks.make_index(
        parts, np.concatenate([part.views for part in parts]),
        max_distance=self.max_distance)

  def queries(
      self, images: Sequence[np.ndarray], tests: blocks.TestIndex,
  ) -> tuple[UInt64[np.ndarray, '_'], Sequence[np.ndarray]]:
    del tests
    return perceptual_hash.fingerprints(np.stack(images))[:, 0], images

  def similarity(
      self, query: np.ndarray, candidate: blocks.Candidate,
      tests: blocks.TestIndex,
  ) -> float:
    mirrored, window = divmod(candidate.view, len(self.windows))
    return similarity.similarity(
        similarity.view(query, perceptual_hash.WHOLE, mirrored=False),
        similarity.view(
            _thumbnail(*tests.locate(candidate.image)), self.windows[window],
            mirrored=bool(mirrored)))

  def is_near_duplicate(self, similarity: float) -> bool:
    return similarity >= self.min_similarity

  def change(self, view: int) -> str:
    mirrored, window = divmod(view, len(self.windows))
    return ' '.join(
        ['mirrored'] * mirrored + ['crop'] * (window > 0)) or 'whole'


@functools.lru_cache(maxsize=10_000)
def _thumbnail(
    selection: selection_lib.Selection, index: int,
) -> UInt8[np.ndarray, '64 64 3']:
  return perceptual_hash.thumbnail(selection.open()[index]['image'])
