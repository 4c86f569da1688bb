"""Images of many folders, and pixels of any type as they can be displayed."""

from collections.abc import Iterable
import itertools
import os

from jaxtyping import Real
import numpy as np
from PIL import Image

Pixels = Real[np.ndarray, '*images channels']
Shown = Real[np.ndarray, '*images shown']
Range = tuple[float, float]


def visible(pixels: Pixels) -> Shown:
  """Returns the first three channels, as RGB, or the first one, as grey."""
  return pixels[..., :3 if pixels.shape[-1] >= 3 else 1]


def fractions(pixels: Pixels, value_range: Range | None = None) -> Shown:
  """Returns the visible channels scaled to 0 ... 1.

  By default, 8-bit values are divided by 255, and others are scaled from their
  minimum to their maximum.
  """
  shown = visible(pixels)
  low, high = value_range or (
      (0, 255) if shown.dtype == np.uint8 else (shown.min(), shown.max()))
  return ((shown - float(low)) / max(high - low, 1e-12)).clip(0, 1)


def to_image(pixels: Pixels, value_range: Range | None = None) -> Image.Image:
  """Returns the `fractions` of an image as 8-bit RGB or grey."""
  values = (255 * fractions(pixels, value_range)).astype(np.uint8)
  return Image.fromarray(values if values.shape[-1] == 3 else values[..., 0])


def interleave(paths: Iterable[str]) -> list[str]:
  """Returns one file of each folder in turn, such as of each class."""
  folders: dict[str, list[str]] = {}
  for path in paths:
    folders.setdefault(os.path.dirname(path), []).append(path)
  turns = itertools.zip_longest(*folders.values())
  return [path for turn in turns for path in turn if path is not None]
