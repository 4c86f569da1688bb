"""Resizes images with Pillow's antialiased filters, or as TensorFlow does.

`tf.image.resize`, in the published pipelines of ViT and big_vision,
interpolates between the nearest pixels (no antialiasing) by default, and offers
'area', the mean over the exact source rectangle of each pixel. As there, the
results of these two are rounded down to integers.
"""

from collections.abc import Callable
import dataclasses
from typing import Any, ClassVar, Literal

from jaxtyping import Real
import numpy as np
from PIL import Image

from vit_jax.data.augment import operation
from vit_jax.data.images import image_file

# 'box' averages whole pixels, 'area' also fractions of pixels.
Method = Literal['nearest', 'box', 'area', 'bilinear', 'bicubic', 'lanczos']
# Rounding of sizes and offsets where these are not whole pixels.
Rounding = Literal['tensorflow', 'torchvision']
Size = int | tuple[int, int]  # One side of a square, or (height, width).
Box = tuple[float, float, float, float]  # Left, top, right, bottom.
POINTWISE = ('nearest', 'bilinear')  # Methods without antialiasing.


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
    raise ValueError(f'An image size must be positive; got {size}.')
  return pair


def store_pairs(op: Any, *names: str) -> None:
  """Replaces sizes given as one side by (height, width)."""
  for name in names:
    if getattr(op, name) is not None:
      object.__setattr__(op, name, height_width(getattr(op, name)))


@dataclasses.dataclass(frozen=True)
class Resize(operation.Operation):
  """Resizes to a size, or keeps the aspect ratio and sets a smallest size.

  At most one of `size`, `shorter` and `cover` is set; default: `size` is the
  resolution.

  Attributes:
    size: output size, ignoring the aspect ratio.
    shorter: length of the shorter side.
    cover: (height, width) that the image covers after resizing, exactly in one
      of them.
    method: interpolation; 'area' is that of TensorFlow, the others are
      Pillow's.
    antialias: False interpolates between the nearest pixels only, as
      `tf.image.resize` does by default.
    rounding: 'tensorflow' (big_vision) rounds the longer side to the nearest
      pixel; 'torchvision' (also timm, Hugging Face) rounds it down.
  """
  masks: ClassVar = 'nearest'
  any_channels: ClassVar = True
  is_random: ClassVar = False

  size: Size | None = None
  shorter: int | None = None
  cover: Size | None = None
  method: Method = 'bilinear'
  antialias: bool = True
  rounding: Rounding = 'tensorflow'

  def __post_init__(self):
    if [self.size, self.shorter, self.cover].count(None) < 2:
      raise ValueError('resize takes one of size, shorter and cover.')
    store_pairs(self, 'size', 'cover')
    if not self.antialias and self.method not in POINTWISE:
      raise ValueError(
          'antialias=False needs the method '
          f'{" or ".join(POINTWISE)}; got {self.method!r}.')

  def __call__(self, image: Any, rng: np.random.Generator) -> Any:
    height, width = self.target(image.height, image.width)
    if image.size == (width, height):
      return image
    # 1 x 60,000 to a shorter side of 224 would be 3 billion pixels.
    if width * height > max(image_file.MAX_PIXELS, image.width * image.height):
      raise ValueError(
          f'an image of {image.height} x {image.width} would be resized to '
          f'{height:,} x {width:,}, more than {image_file.MAX_PIXELS:,} '
          'pixels. Crop it first.')
    return resize(
        image, (width, height), method=self.method, antialias=self.antialias)

  @property
  def least(self) -> tuple[int, int]:
    """Smallest height and width of a resized image."""
    return height_width(self.size or self.cover or self.shorter or 1)

  @property
  def keeps_whole(self) -> bool:
    return self.size is not None

  def at(self, resolution: tuple[int, int]) -> operation.Operation:
    return self if self.shorter or self.cover else super().at(resolution)

  def scaled(
      self, scale: Callable[[tuple[int, int]], tuple[int, int]],
  ) -> operation.Operation:
    if self.cover is not None:
      return dataclasses.replace(self, cover=scale(self.least))
    if self.shorter is None:
      return super().scaled(scale)
    height, width = scale((self.shorter, self.shorter))
    return dataclasses.replace(self, shorter=height) if height == width else (
        # A crop of another shape may not fit into the shorter side.
        dataclasses.replace(self, shorter=None, cover=(height, width)))

  def target(self, height: int, width: int) -> tuple[int, int]:
    """Returns the height and width of a resized image."""
    if self.size is not None:
      return self.least
    if self.cover is not None:
      rows, columns = self.least
      scale = max(rows / height, columns / width)
      # timm rounds this size to the nearest pixel, too.
      return (max(rows, round(height * scale)),
              max(columns, round(width * scale)))
    assert self.shorter is not None
    if self.rounding == 'torchvision':  # Exact: no product of a rounded scale.
      longer = self.shorter * max(height, width) // min(height, width)
    else:
      longer = round(max(height, width) * (self.shorter / min(height, width)))
    return ((longer, self.shorter) if height > width else
            (self.shorter, longer))


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
