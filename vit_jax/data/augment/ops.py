"""Image operations of the host: pure functions of an image and a generator.

Each operation is a record of its settings. The pipeline is `decode`, the
operations in order, then `to_array`. Images stay Pillow images (or
`MultichannelImage`) between operations, because resizing a box needs no copy.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
from typing import Any, Literal

from jaxtyping import Real
import numpy as np
from PIL import Image

from vit_jax import schema
from vit_jax.data.augment import colour
from vit_jax.data.augment import randaugment
from vit_jax.data.images import limits
from vit_jax.data.images import multichannel

Size = int | tuple[int, int]  # One side of a square, or (height, width).
Method = Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos']

Picture = Any  # A Pillow image or a `MultichannelImage`.
Op = Callable[[Picture, np.random.Generator], Picture]


def height_width(size: Size) -> tuple[int, int]:
  """Returns (height, width) of a size given as one or two numbers."""
  pair = (size, size) if isinstance(size, int) else size
  if min(pair) < 1:
    raise ValueError(f'An image size must be positive; got {size}.')
  return pair


def to_array(
    image: Picture, *, size: tuple[int, int],
) -> Real[np.ndarray, 'height width channels']:
  """Returns the pixels; raises a ValueError if they are not of `size`."""
  height, width = size
  if image.size != (width, height):
    raise ValueError(
        f'The operations return an image of {image.height} x {image.width}, '
        f'but the batch has {height} x {width} (data.resolution). Finish with '
        'an operation that sets the size: resize, central_crop or '
        'inception_crop.')
  return pixels(image)


def pixels(image: Picture) -> Real[np.ndarray, 'height width channels']:
  """Returns the pixels of an image."""
  if isinstance(image, multichannel.MultichannelImage):
    return image.pixels
  array = np.asarray(image)
  return array[..., None] if array.ndim == 2 else array


@dataclasses.dataclass(frozen=True)
class Resize:
  """Resizes, with antialiasing, to a size or to a length of the shorter side.

  Attributes:
    size: output size, ignoring the aspect ratio; default: the resolution.
    shorter: length of the shorter side instead, keeping the aspect ratio.
    method: interpolation.
  """
  size: Size | None = None
  shorter: int | None = None
  method: Method = 'bilinear'

  def __post_init__(self):
    if self.size is not None and self.shorter is not None:
      raise ValueError('resize takes size or shorter, not both.')

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    if self.shorter is not None:
      scale = self.shorter / min(image.size)
      width, height = (
          max(self.shorter, round(side * scale)) for side in image.size)
    else:
      assert self.size is not None
      height, width = height_width(self.size)
    if image.size == (width, height):
      return image
    # 1 x 60,000 to a shorter side of 224 would be 3 billion pixels.
    if width * height > max(limits.MAX_PIXELS, image.width * image.height):
      raise ValueError(
          f'an image of {image.height} x {image.width} would be resized to '
          f'{height:,} x {width:,}, more than {limits.MAX_PIXELS:,} pixels. '
          'Crop it first.')
    return image.resize((width, height), Image.Resampling[self.method.upper()])


@dataclasses.dataclass(frozen=True)
class CentralCrop:
  """Crops the centre; default size: the resolution."""
  size: Size | None = None

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    assert self.size is not None
    height, width = height_width(self.size)
    if image.width < width or image.height < height:
      raise ValueError(
          f'central_crop of {height} x {width} does not fit into an image of '
          f'{image.height} x {image.width}. Put {{"op": "resize", "shorter": '
          f'{max(height, width)}}} before it.')
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


@dataclasses.dataclass(frozen=True)
class InceptionCrop:
  """Resizes a random crop of random area and aspect ratio (Inception crop).

  Szegedy et al., "Going Deeper with Convolutions", section 6
  (https://arxiv.org/abs/1409.4842), with area 8 % to 100 %; the ViT code uses
  5 % to 100 %, the default here.

  Attributes:
    size: output size; default: the resolution.
    area: range of the crop's share of the image area, in (0, 1].
    aspect: range of width / height of the crop.
    method: interpolation.
    sampler: distribution of crops. 'torch' (torchvision): area and logarithm of
      the aspect ratio are uniform. 'tf' (TensorFlow's
      `sample_distorted_bounding_box`): the aspect ratio is uniform, then the
      height is, which gives smaller crops: a mean area of 34 % instead of 42 %
      in images of 500 x 375.
  """
  size: Size | None = None
  area: tuple[float, float] = (0.05, 1.0)
  aspect: tuple[float, float] = (3 / 4, 4 / 3)
  method: Method = 'bilinear'
  sampler: Literal['tf', 'torch'] = 'torch'

  def __post_init__(self):
    if not 0 < self.area[0] <= self.area[1] <= 1:
      raise ValueError(
          f'area must be two fractions, 0 < low <= high <= 1; got {self.area}.')
    if not 0 < self.aspect[0] <= self.aspect[1]:
      raise ValueError(
          f'aspect must be two ratios, 0 < low <= high; got {self.aspect}.')

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    assert self.size is not None
    height, width = height_width(self.size)
    left, top, w, h = self.window(image.width, image.height, rng)
    return image.resize(
        (width, height), Image.Resampling[self.method.upper()],
        box=(left, top, left + w, top + h))

  def window(
      self, width: int, height: int, rng: np.random.Generator,
  ) -> tuple[int, int, int, int]:
    """Returns (left, top, width, height) of a crop inside the image."""
    if self.sampler == 'tf':
      return self._tf_window(width, height, rng)
    low, high = math.log(self.aspect[0]), math.log(self.aspect[1])
    # Crops that do not fit are drawn again. Extreme panoramas, for which ten
    # tries fail, are cropped at the centre.
    for _ in range(10):
      area = width * height * rng.uniform(*self.area)
      aspect = math.exp(rng.uniform(low, high))
      w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
      if 0 < w <= width and 0 < h <= height:
        left = int(rng.integers(width - w + 1))
        top = int(rng.integers(height - h + 1))
        return left, top, w, h
    w = min(width, max(1, round(height * self.aspect[1])))
    h = min(height, max(1, round(width / self.aspect[0])))
    return (width - w) // 2, (height - h) // 2, w, h

  def _tf_window(
      self, width: int, height: int, rng: np.random.Generator,
  ) -> tuple[int, int, int, int]:
    low, high = (share * width * height for share in self.area)
    for _ in range(100):
      aspect = rng.uniform(*self.aspect)
      largest = min(
          round(math.sqrt(high / aspect)), height,
          # The largest height whose width, rounded, fits.
          int((width + 0.5 - 1e-7) / aspect))
      smallest = min(round(math.sqrt(low / aspect)), largest)
      h = int(rng.integers(smallest, largest + 1))
      # The area may be out of range by rounding.
      h += round(h * aspect) * h < low
      h -= round(h * aspect) * h > high
      w = round(h * aspect)
      if low <= w * h <= high and 0 < w <= width and 0 < h <= height:
        # TensorFlow's offsets never reach the far edge.
        left, top = (
            int(rng.integers(max(1, space))) for space in (
                width - w, height - h))
        return left, top, w, h
    return 0, 0, width, height


@dataclasses.dataclass(frozen=True)
class PadCrop:
  """Pads with zeros and crops the original size at random (CIFAR style).

  He et al. (https://arxiv.org/abs/1512.03385), section 4.2.
  """
  padding: int = 4  # Pixels on each side.

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    left, top = rng.integers(-self.padding, self.padding + 1, 2).tolist()
    # `crop` fills with zeros beyond the edges.
    return image.crop((left, top, left + image.width, top + image.height))


@dataclasses.dataclass(frozen=True)
class Flip(colour.RandomOp):
  """Mirrors left to right with the given probability."""

  def change(self, image: Picture, rng: np.random.Generator) -> Picture:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


# Operations of Pillow on 8-bit grey or RGB.
_8_BIT: dict[str, type] = {
    'blur': colour.Blur, 'color_jitter': colour.ColorJitter,
    'grayscale': colour.Grayscale, 'randaugment': randaugment.RandAugment,
    'random_erasing': colour.RandomErasing,
    'trivial_augment': colour.TrivialAugment}
OPS: dict[str, type] = {
    'central_crop': CentralCrop, 'flip': Flip, 'inception_crop': InceptionCrop,
    'pad_crop': PadCrop, 'resize': Resize, **_8_BIT}


def build(
    sections: Sequence[Mapping[str, Any]], *, size: tuple[int, int],
    where: str, any_channels: bool = False,
) -> tuple[Op, ...]:
  """Builds operations from sections such as {'op': 'flip'}.

  `size` is the default (height, width), and `where` the config key for
  messages. With `any_channels`, images are not 8-bit grey or RGB.

  Raises:
    ValueError: for an unknown or unsuitable operation, or an unknown setting.
  """
  ops = []
  for i, section in enumerate(sections):
    place, settings = f'{where}[{i}]', dict(section)
    if 'op' not in settings:
      raise ValueError(
          f'{place} needs the key op: {settings!r}. Known: {", ".join(OPS)}.')
    name = settings.pop('op')
    schema.check_name(name, list(OPS), what=f'{place}.op')
    if any_channels and name in _8_BIT:
      raise ValueError(
          f'{place}: {name} needs 8-bit grey or RGB images, unlike '
          'data.channels and data.dtype. Remove it.')
    op: Any = schema.parse(OPS[name], settings, where=f'{place} ({name})')
    if getattr(op, 'size', size) is None and not getattr(op, 'shorter', None):
      op = dataclasses.replace(op, size=size)
    ops.append(op)
  return tuple(ops)
