"""A 64-bit perceptual hash, similar for near-duplicate images.

The hash holds the signs of the 64 lowest frequencies of the image's cosine
transform, as in pHash (Zauner, "Implementation and benchmarking of perceptual
image hash functions", 2010, section 3.2.1, with zero instead of the median).
Changes of size, format, brightness or contrast flip few bits. Hashes of
mirrored images and of crops need no second decoding: mirroring flips the signs
of odd horizontal frequencies, and crops are transformed from the same
thumbnail. Images without contrast are hashed by their pixels.
"""

import dataclasses
import functools
from typing import Any

from jaxtyping import Bool, Float32, UInt8, UInt64
import numpy as np
from PIL import Image

from vit_jax.data.splits import split_strings

SIDE = 64  # Side of a thumbnail in pixels.
FLAT = 2.0  # Images with a lower standard deviation of grey are noise.

# ITU-R 601, like Pillow.
LUMA = np.array([0.299, 0.587, 0.114], np.float32)

Thumbnails = UInt8[np.ndarray, 'images 64 64 3']


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
