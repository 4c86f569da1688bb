"""Resizes images with Pillow's antialiased filters, or as TensorFlow does.

`tf.image.resize`, in the published pipelines of ViT and big_vision,
interpolates between the nearest pixels (no antialiasing) by default, and offers
'area', the mean over the exact source rectangle of each pixel. As there, the
results of these two are rounded down to integers.
"""

from typing import Any, Literal

from jaxtyping import Real
import numpy as np
from PIL import Image

from vit_jax.exceptions import UserError

# 'box' averages whole pixels, 'area' also fractions of pixels.
Method = Literal['nearest', 'box', 'area', 'bilinear', 'bicubic', 'lanczos']
# Rounding of sizes and offsets where these are not whole pixels.
Rounding = Literal['tensorflow', 'torchvision']
Size = int | tuple[int, int]  # One side of a square, or (height, width).
Box = tuple[float, float, float, float]  # Left, top, right, bottom.
POINTWISE = ('nearest', 'bilinear')  # Methods that need no antialiasing.


def resize(
    image: Any, size: tuple[int, int], *, method: Method,
    antialias: bool = True, box: Box | None = None,
) -> Any:
  """Returns a picture, or a box of it, resized to (width, height).

  Args:
    image: a result of `decode.decode`.
    size: width and height of the result.
    method: interpolation.
    antialias: whether the filter grows with the reduction, so that every pixel
      of the image counts.
    box: part of the image to resize; default: all of it.
  """
  if not isinstance(image, Image.Image):
    return image.resized(size, method=method, antialias=antialias, box=box)
  box = box or (0, 0, image.width, image.height)
  if method == 'area':
    rows = _area_means(np.asarray(image), box[1], box[3], size[1])
    pixels = _area_means(
        rows.swapaxes(0, 1), box[0], box[2], size[0]).swapaxes(0, 1)
    if image.mode != 'F':
      pixels = np.floor(pixels + 1e-6)  # Not below a mean that is an integer.
    return Image.fromarray(np.ascontiguousarray(
        pixels, np.float32 if image.mode == 'F' else np.uint8))
  filter_ = Image.Resampling[method.upper()]
  if antialias:
    return image.resize(size, filter_, box=box)
  return image.transform(size, Image.Transform.EXTENT, box, filter_)


def height_width(size: Size) -> tuple[int, int]:
  """Returns (height, width) of a size given as one or two numbers."""
  pair = (size, size) if isinstance(size, int) else size
  if min(pair) < 1:
    raise UserError(f'An image size must be positive; got {size}.')
  return pair


def store_pairs(op: Any, *names: str) -> None:
  """Replaces sizes given as one side by (height, width)."""
  for name in names:
    if getattr(op, name) is not None:
      object.__setattr__(op, name, height_width(getattr(op, name)))


def _area_means(
    pixels: Real[np.ndarray, 'length *rest'], start: float, end: float,
    count: int,
) -> Real[np.ndarray, 'count *rest']:
  """Returns the means of `count` equal intervals of the first axis."""
  edges = np.linspace(start, end, count + 1)
  whole = np.minimum(edges.astype(int), len(pixels) - 1)
  sums = np.zeros((len(pixels) + 1, *pixels.shape[1:]))
  np.cumsum(pixels, axis=0, out=sums[1:])
  fraction = (edges - whole).reshape(-1, *[1] * (pixels.ndim - 1))
  integral = sums[whole] + fraction * pixels[whole]
  return np.diff(integral, axis=0) * (count / (end - start))
