"""64 bits that near-duplicates of a picture share: a perceptual hash.

The signs of the 64 lowest frequencies of a picture's cosine transform (the
idea of pHash: Zauner, "Implementation and benchmarking of perceptual image hash
functions", 2010, section 3.2.1, where the median stands for zero). Neither size
nor format, brightness nor contrast changes many of them. What is done here
besides, all of it for many pictures at once:

  mirrored   turns the sign of odd horizontal frequencies: an exclusive or
  crops      the transform over a window, in closed form, of the same thumbnail

A flat picture has no signs but those of noise: its bits are a hash of its
pixels, so that only the same one is near it.
"""

import dataclasses
import functools
import hashlib
from typing import Any

from jaxtyping import Bool, Float32, UInt8, UInt64
import numpy as np
from PIL import Image

from vit_jax.data.images import decode

SIDE = 64  # Of a thumbnail, in pixels.
FLAT = 2.0  # Standard deviation of grey, of 255, below which all is noise.

# ITU-R 601 luma, as Pillow's grey.
LUMA = np.array([0.299, 0.587, 0.114], np.float32)

Thumbnails = UInt8[np.ndarray, 'images 64 64 3']


@dataclasses.dataclass(frozen=True)
class Window:
  """A part of a picture, in shares of its sides."""
  top: float = 0.0
  bottom: float = 1.0
  left: float = 0.0
  right: float = 1.0


WHOLE = Window()


@functools.cache
def crops() -> tuple[Window, ...]:
  """Returns the whole and 29 windows: crops of at least 0.85 of each side.

  A fingerprint bears a shift of some 2 % of a side, and so the windows of a
  size lie 5 % apart.
  """
  windows = [WHOLE]
  for size, count in ((0.95, 2), (0.9, 3), (0.85, 4)):
    starts = np.linspace(0, 1 - size, count).tolist()
    windows += [Window(top, top + size, left, left + size)
                for top in starts for left in starts]
  return tuple(windows)


def thumbnail(image: bytes | np.ndarray | Image.Image) -> UInt8[
    np.ndarray, '64 64 3']:
  """Returns a picture's areas, averaged; its shape is not kept.

  Raises:
    ValueError: if it is no picture.
  """
  if not isinstance(image, Image.Image):
    image = decode.decode(image, channels=3)
  # A large picture is first made smaller by whole pixels, which is quick.
  return np.asarray(image.convert('RGB').resize(
      (SIDE, SIDE), Image.Resampling.BOX, reducing_gap=3.0))


@functools.cache
def _frequencies() -> tuple[np.ndarray, np.ndarray]:
  """Returns the vertical and horizontal frequency of each bit, lowest first."""
  pairs = sorted(
      (i + j, max(i, j), i, j) for i in range(12) for j in range(12) if i + j)
  rows = np.array([(i, j) for *_, i, j in pairs[:64]])
  return rows[:, 0], rows[:, 1]


def _cosines(first: float, last: float, count: int) -> Float32[
    np.ndarray, 'frequencies 64']:
  """Returns what takes pixels to their cosine transform over a range.

  Row k holds the integrals of cos(pi k u) over each pixel, where u goes from 0
  to 1 in the range: exact wherever the range begins.
  """
  edges = np.clip(np.arange(SIDE + 1) / SIDE, first, last)
  u = (edges - first) / (last - first)
  k = np.arange(1, count)[:, None]
  rows = np.concatenate([u[None], np.sin(np.pi * k * u) / (np.pi * k)])
  return np.diff(rows, axis=1).astype(np.float32)


def fingerprints(
    thumbnails: Thumbnails, windows: tuple[Window, ...] = (WHOLE,),
) -> UInt64[np.ndarray, 'images windows']:
  """Returns 64 bits of each window of each picture."""
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
  bits = _pack(signs)
  flat = is_flat(thumbnails)
  bits[flat] = _of_pixels(thumbnails[flat])[:, None]
  return bits


def mirrored(
    bits: UInt64[np.ndarray, '*shape'],
) -> UInt64[np.ndarray, '*shape']:
  """Returns the fingerprints of the same pictures, left and right exchanged.

  Not of the same window, but of the one at the mirrored place. Not of a flat
  picture.
  """
  _, horizontal = _frequencies()
  return bits ^ _pack(horizontal % 2 == 1)


def is_flat(thumbnails: Thumbnails) -> Bool[np.ndarray, 'images']:
  """Says which pictures have next to no contrast."""
  grey = thumbnails.astype(np.float32) @ LUMA
  return grey.std(axis=(1, 2)) < FLAT


def _pack(signs: Bool[np.ndarray, '*shape 64']) -> Any:
  """Returns bits as numbers; bit i is frequency i."""
  packed = np.packbits(signs, axis=-1, bitorder='little')
  return np.ascontiguousarray(packed).view('<u8')[..., 0]


def _of_pixels(thumbnails: Thumbnails) -> UInt64[np.ndarray, 'images']:
  return np.array(
      [int.from_bytes(hashlib.blake2b(t.tobytes(), digest_size=8).digest(),
                      'little') for t in thumbnails], np.uint64)
