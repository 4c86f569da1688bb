"""Similarity of images: a 64-bit perceptual hash, then the pixels.

Near-duplicates have similar hashes, but so have some other images; the pixels
of pairs with similar hashes are compared.

A hash holds the signs of the 64 lowest frequencies of the image's cosine
transform, as in pHash (Zauner, "Implementation and benchmarking of perceptual
image hash functions", 2010, section 3.2.1, with zero instead of the median).
Changes of size, format, brightness or contrast flip few bits. Hashes of
mirrored images and of crops need no second decoding: mirroring flips the signs
of odd horizontal frequencies, and crops are transformed from the same
thumbnail. Images without contrast are hashed by their pixels.

The similarity of pixels is the correlation of 16 x 16 x 3 averages, centred per
channel, so that brightness and contrast do not matter. If one image is grey,
luma is compared.
"""

import dataclasses
import functools
from typing import Any

from jaxtyping import Bool, Float32, UInt8, UInt64
import numpy as np
from PIL import Image

from vit_jax import fields
from vit_jax.data.splits import split_strings
from vit_jax.extras.curation import hash_index

SIDE = 64  # Side of a thumbnail in pixels.
FLAT = 2.0  # Images with a lower standard deviation of grey are noise.
_VIEW_SIDE = 16
# Flat images have no correlation; they match if no average differs by more than
# this.
_SAME_FLAT = 4.0

# ITU-R 601, like Pillow.
LUMA = np.array([0.299, 0.587, 0.114], np.float32)

Thumbnails = UInt8[np.ndarray, 'images 64 64 3']


@dataclasses.dataclass(frozen=True)
class Thresholds:
  """Thresholds of near-duplicates.

  Attributes:
    max_distance: maximum number of different bits of 64; unrelated images
      differ in about 32 bits.
    min_similarity: minimum correlation of pixels.
  """
  max_distance: int = 7
  min_similarity: float = 0.9

  def __post_init__(self):
    fields.check_range(self, 'max_distance', most=hash_index.MAX_DISTANCE)
    fields.check_range(self, 'min_similarity', above=0, most=1)


@dataclasses.dataclass(frozen=True)
class Window:
  """A crop, in fractions of the image's sides."""
  top: float = 0.0
  bottom: float = 1.0
  left: float = 0.0
  right: float = 1.0


WHOLE = Window()


@functools.cache
def crops() -> tuple[Window, ...]:
  """Returns the whole image and 29 crops of at least 0.85 of each side.

  Hashes tolerate a shift of about 2 % of a side, so windows are 5 % apart.
  """
  windows = [WHOLE]
  for size, count in ((0.95, 2), (0.9, 3), (0.85, 4)):
    starts = np.linspace(0, 1 - size, count).tolist()
    windows += [Window(top, top + size, left, left + size)
                for top in starts for left in starts]
  return tuple(windows)


def thumbnail(image: Image.Image) -> UInt8[np.ndarray, '64 64 3']:
  """Returns an image averaged to 64 x 64 pixels, ignoring the aspect ratio."""
  return np.asarray(image.convert('RGB').resize(
      (SIDE, SIDE), Image.Resampling.BOX, reducing_gap=3.0))


@functools.cache
def _frequencies() -> tuple[np.ndarray, np.ndarray]:
  """Returns the vertical and horizontal frequency of each bit."""
  pairs = sorted(
      (i + j, max(i, j), i, j) for i in range(12) for j in range(12) if i + j)
  rows = np.array([(i, j) for *_, i, j in pairs[:64]])
  return rows[:, 0], rows[:, 1]


def _cosines(first: float, last: float, count: int) -> Float32[
    np.ndarray, 'frequencies 64']:
  """Returns the cosine transform matrix for a range of pixels.

  Row k has the integrals of cos(pi k u) over each pixel, with u from 0 to 1 in
  the range, which need not start at a pixel edge.
  """
  edges = np.clip(np.arange(SIDE + 1) / SIDE, first, last)
  u = (edges - first) / (last - first)
  k = np.arange(1, count)[:, None]
  rows = np.concatenate([u[None], np.sin(np.pi * k * u) / (np.pi * k)])
  return np.diff(rows, axis=1).astype(np.float32)


def fingerprints(
    thumbnails: Thumbnails, windows: tuple[Window, ...] = (WHOLE,),
) -> UInt64[np.ndarray, 'images windows']:
  """Returns the 64-bit hash of each window of each image."""
  vertical, horizontal = _frequencies()
  count = int(max(vertical.max(), horizontal.max())) + 1
  spans = sorted({s for w in windows for s in (
      (w.top, w.bottom), (w.left, w.right))})
  matrix = np.concatenate([_cosines(*span, count) for span in spans])
  place = {span: i * count for i, span in enumerate(spans)}
  grey = thumbnails.astype(np.float32) @ LUMA
  transformed = matrix @ (grey @ matrix.T)
  signs = np.stack([
      transformed[:, place[w.top, w.bottom] + vertical,
                  place[w.left, w.right] + horizontal] > 0
      for w in windows], axis=1)
  bits = pack(signs)
  flat = is_flat(thumbnails)
  bits[flat] = np.array([split_strings.stable_hash(pixels.tobytes())
                         for pixels in thumbnails[flat]], np.uint64)[:, None]
  return bits


def mirrored(
    bits: UInt64[np.ndarray, '*shape'],
) -> UInt64[np.ndarray, '*shape']:
  """Returns the hashes of the mirrored images and windows.

  Not valid for flat images.
  """
  _, horizontal = _frequencies()
  return bits ^ pack(horizontal % 2 == 1)


def is_flat(thumbnails: Thumbnails) -> Bool[np.ndarray, 'images']:
  """Returns which images have almost no contrast."""
  grey = thumbnails.astype(np.float32) @ LUMA
  return grey.std(axis=(1, 2)) < FLAT


def pack(signs: Bool[np.ndarray, '*shape 64']) -> Any:
  """Packs booleans into 64-bit integers; bit i is frequency i."""
  packed = np.packbits(signs, axis=-1, bitorder='little')
  return np.ascontiguousarray(packed).view('<u8')[..., 0]


@functools.cache
def _averages(first: float, last: float) -> Float32[np.ndarray, '16 64']:
  """Returns the matrix that averages pixels in 16 equal parts of a range."""
  cuts = np.linspace(first, last, _VIEW_SIDE + 1) * SIDE
  pixels = np.arange(SIDE)
  covered = (np.minimum(cuts[1:, None], pixels + 1)
             - np.maximum(cuts[:-1, None], pixels)).clip(0)
  return (covered / covered.sum(axis=1, keepdims=True)).astype(np.float32)


def view(
    thumbnail: UInt8[np.ndarray, '64 64 3'], window: Window = WHOLE, *,
    mirrored: bool = False,
) -> Float32[np.ndarray, '16 16 3']:
  """Returns the pixel averages of a window."""
  pixels = np.einsum(
      'ay,yxc,bx->abc', _averages(window.top, window.bottom),
      thumbnail.astype(np.float32), _averages(window.left, window.right),
      optimize=True)
  return pixels[:, ::-1] if mirrored else pixels


def correlation(
    one: Float32[np.ndarray, '16 16 3'], other: Float32[np.ndarray, '16 16 3'],
) -> float:
  """Returns the correlation of two views; for flat ones, 1 or 0."""
  if _is_grey(one) or _is_grey(other):
    one, other = (x @ LUMA[:, None] for x in (one, other))
  a, b = (x - x.mean(axis=(0, 1)) for x in (one, other))
  scale = float(np.linalg.norm(a) * np.linalg.norm(b))
  if min(a.std(), b.std()) < FLAT:
    return float(np.abs(one - other).max() < _SAME_FLAT)
  return float((a * b).sum() / scale)


def _is_grey(view: Float32[np.ndarray, '16 16 3']) -> bool:
  return bool(np.ptp(view, axis=2).max() < _SAME_FLAT)
