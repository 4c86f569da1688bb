"""Pixel similarity of two images with similar fingerprints.

The correlation of 16 x 16 x 3 pixel averages, centred per channel, so that
brightness and contrast do not matter. If one image is grey, luma is compared.
"""

import dataclasses
import functools

from jaxtyping import Float32, UInt8
import numpy as np

from vit_jax.curation import hash_index
from vit_jax.curation import perceptual_hash

SIDE = 16
# Flat images have no correlation; they match if no average differs by more than
# this.
_SAME_FLAT = 4.0


@dataclasses.dataclass(frozen=True)
class Thresholds:
  """Thresholds of near-duplicates.

  Attributes:
    max_distance: maximum number of different bits of 64.
    min_similarity: minimum correlation of pixels.
  """
  max_distance: int = 7
  min_similarity: float = 0.9

  def __post_init__(self):
    hash_index.check_distance(self.max_distance)
    if not 0 < self.min_similarity <= 1:
      raise ValueError(
          f'min_similarity must be in (0, 1]; got {self.min_similarity}.')


@functools.cache
def _averages(first: float, last: float) -> Float32[np.ndarray, '16 64']:
  """Returns the matrix that averages pixels in 16 equal parts of a range."""
  cuts = np.linspace(first, last, SIDE + 1) * perceptual_hash.SIDE
  pixels = np.arange(perceptual_hash.SIDE)
  covered = (np.minimum(cuts[1:, None], pixels + 1)
             - np.maximum(cuts[:-1, None], pixels)).clip(0)
  return (covered / covered.sum(axis=1, keepdims=True)).astype(np.float32)


def view(
    thumbnail: UInt8[np.ndarray, '64 64 3'], window: perceptual_hash.Window, *,
    mirrored: bool,
) -> Float32[np.ndarray, '16 16 3']:
  """Returns the pixel averages of a window."""
  pixels = np.einsum(
      'ay,yxc,bx->abc', _averages(window.top, window.bottom),
      thumbnail.astype(np.float32), _averages(window.left, window.right),
      optimize=True)
  return pixels[:, ::-1] if mirrored else pixels


def similarity(
    one: Float32[np.ndarray, '16 16 3'], other: Float32[np.ndarray, '16 16 3'],
) -> float:
  """Returns the correlation of two views; for flat ones, 1 or 0."""
  if _is_grey(one) or _is_grey(other):
    one, other = (x @ perceptual_hash.LUMA[:, None] for x in (one, other))
  a, b = (x - x.mean(axis=(0, 1)) for x in (one, other))
  scale = float(np.linalg.norm(a) * np.linalg.norm(b))
  if min(a.std(), b.std()) < perceptual_hash.FLAT:
    return float(np.abs(one - other).max() < _SAME_FLAT)
  return float((a * b).sum() / scale)


def _is_grey(view: Float32[np.ndarray, '16 16 3']) -> bool:
  return bool(np.ptp(view, axis=2).max() < _SAME_FLAT)
