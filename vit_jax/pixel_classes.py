"""Classes of pixels: from logits, and as pictures."""

from jaxtyping import Float, UInt8
import numpy as np
from PIL import Image


def from_logits(
    logits: Float[np.ndarray, 'rows columns classes'], size: tuple[int, int],
) -> UInt8[np.ndarray, 'height width']:
  """Returns the class of each pixel of an image of size (height, width).

  Logits are interpolated bilinearly.
  """
  by_class = np.moveaxis(np.asarray(logits, np.float32), -1, 0)
  return np.stack([np.asarray(Image.fromarray(scores).resize(
      size[::-1], Image.Resampling.BILINEAR)) for scores in by_class]).argmax(
          axis=0).astype(np.uint8)


def colours(count: int) -> UInt8[np.ndarray, '256 3']:
  """Returns the colours of the first classes, and grey for other values."""
  import matplotlib
  values = np.arange(256)  # tab20 has pairs: all dark colours come first.
  found = matplotlib.colormaps['tab20'](
      2 * values % 20 + values // 10 % 2, bytes=True)[:, :3]
  found[count:] = 191
  return found
