"""How alike two pictures are, once their fingerprints say that they may be.

The correlation of their pixels, 16 x 16 x 3 averages, after the mean of each
colour was taken away: from -1 to 1, whatever the brightness and the contrast.
Where one of them is grey, the other's colours do not count.
"""

import dataclasses
import functools

from jaxtyping import Float32, UInt8
import numpy as np

from vit_jax.data.fingerprints import hash_index
from vit_jax.data.fingerprints import perceptual_hash

SIDE = 16
# A flat picture correlates with nothing; what differs less than this, of 255,
# in each of its averages is the same.
_SAME_FLAT = 4.0


@dataclasses.dataclass(frozen=True)
class Likeness:
  """What counts as a near-duplicate.

  Attributes:
    max_distance: bits of 64 that fingerprints may differ in.
    min_similarity: the least correlation of the pixels.
  """
  max_distance: int = 7
  min_similarity: float = 0.9

  def __post_init__(self):
    hash_index.check_distance(self.max_distance)
    if not 0 < self.min_similarity <= 1:
      raise ValueError(
          'The least similarity must lie in (0, 1]; got '
          f'{self.min_similarity}.')


@functools.cache
def _averages(first: float, last: float) -> Float32[np.ndarray, '16 64']:
  """Returns what takes pixels to the averages of 16 equal parts of a range."""
  cuts = np.linspace(first, last, SIDE + 1) * perceptual_hash.SIDE
  pixels = np.arange(perceptual_hash.SIDE)
  covered = (np.minimum(cuts[1:, None], pixels + 1)
             - np.maximum(cuts[:-1, None], pixels)).clip(0)
  return (covered / covered.sum(axis=1, keepdims=True)).astype(np.float32)


def view(
    thumbnail: UInt8[np.ndarray, '64 64 3'], window: perceptual_hash.Window, *,
    mirrored: bool,
) -> Float32[np.ndarray, '16 16 3']:
  """Returns the averages of a window of a picture."""
  pixels = np.einsum(
      'ay,yxc,bx->abc', _averages(window.top, window.bottom),
      thumbnail.astype(np.float32), _averages(window.left, window.right),
      optimize=True)
  return pixels[:, ::-1] if mirrored else pixels


def similarity(
    one: Float32[np.ndarray, '16 16 3'], other: Float32[np.ndarray, '16 16 3'],
) -> float:
  """Returns the correlation of two views; of flat ones 1 or 0."""
  if _is_grey(one) or _is_grey(other):
    one, other = (x @ perceptual_hash.LUMA[:, None] for x in (one, other))
  a, b = (x - x.mean(axis=(0, 1)) for x in (one, other))
  scale = float(np.linalg.norm(a) * np.linalg.norm(b))
  if min(a.std(), b.std()) < perceptual_hash.FLAT:
    return float(np.abs(one - other).max() < _SAME_FLAT)
  return float((a * b).sum() / scale)


def _is_grey(view: Float32[np.ndarray, '16 16 3']) -> bool:
  return bool(np.ptp(view, axis=2).max() < _SAME_FLAT)
