"""Image operations of the host: a record each, made from a section of a config.

An operation takes an image, Pillow's or `Bands`, and a NumPy random generator
and returns another; it holds its settings and nothing else, so it can travel to
a worker process, and its result depends on its two arguments alone. Pillow is
kept from one operation to the next because its resize reads a crop in place.

A pipeline is `decode`, then the operations in their order, then `to_array`.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import typing
from typing import Any, Literal, Protocol

from jaxtyping import Real
import numpy as np
from PIL import Image

from vit_jax import schema
from vit_jax.data.augment import randaugment
from vit_jax.data.images import limits
from vit_jax.data.images import multichannel

Size = int | tuple[int, int]  # One side of a square, or (height, width).
Method = Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos']

METHODS = {
    'nearest': Image.Resampling.NEAREST, 'box': Image.Resampling.BOX,
    'bilinear': Image.Resampling.BILINEAR,
    'bicubic': Image.Resampling.BICUBIC, 'lanczos': Image.Resampling.LANCZOS}


Picture = Any  # A Pillow image, or `bands.Bands`: they share these methods.


@typing.runtime_checkable
class Op(Protocol):
  """What every operation is."""

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    ...


def height_width(size: Size) -> tuple[int, int]:
  """Returns (height, width) of a size written as one or two numbers.

  Raises:
    ValueError: if a side is not positive.
  """
  pair = (size, size) if isinstance(size, int) else size
  if min(pair) < 1:
    raise ValueError(f'An image size must be positive; got {size}.')
  return pair


def to_array(
    image: Picture, *, size: tuple[int, int],
) -> Real[np.ndarray, 'height width channels']:
  """Returns the pixels, after a check that they have the size of the batch.

  Raises:
    ValueError: if height and width are not `size`.
  """
  height, width = size
  if image.size != (width, height):
    raise ValueError(
        f'The operations leave an image of {image.height} x {image.width}, '
        f'but the batch holds {height} x {width} (data.resolution). End them '
        'with an operation that fixes the size: resize, central_crop, '
        'inception_crop or pad_crop.')
  return pixels(image)


def pixels(image: Picture) -> Real[np.ndarray, 'height width channels']:
  """Returns the pixels of an image of any size."""
  if isinstance(image, multichannel.Bands):
    return image.pixels
  array = np.asarray(image)
  return array[..., None] if array.ndim == 2 else array


# ---------------------------------------------------------- crops and resizes


@dataclasses.dataclass(frozen=True)
class Resize:
  """Resizes to an exact size, or so that the shorter side has a length.

  Pillow widens its filter when it shrinks an image (antialiasing). A strip of
  pixels may not grow without bound: 1 x 60,000 to a shorter side of 224 would
  be 3 billion pixels.

  Attributes:
    size: of the result, aspect ratio ignored; default: the resolution.
    shorter: pixels of the shorter side instead, aspect ratio kept.
    method: interpolation.
  """
  size: Size | None = None
  shorter: int | None = None
  method: Method = 'bilinear'

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    del rng
    if self.shorter is not None:
      scale = self.shorter / min(image.size)
      width, height = (
          max(self.shorter, round(side * scale)) for side in image.size)
    else:
      assert self.size is not None
      height, width = height_width(self.size)
    if image.size == (width, height):
      return image
    if width * height > max(limits.MAX_PIXELS, image.width * image.height):
      raise ValueError(
          f'an image of {image.height} x {image.width} would be resized to '
          f'{height:,} x {width:,}, more than {limits.MAX_PIXELS:,} pixels. '
          'Crop it before.')
    return image.resize((width, height), METHODS[self.method])


@dataclasses.dataclass(frozen=True)
class CentralCrop:
  """Cuts the middle out; default size: the resolution."""
  size: Size | None = None

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    del rng
    assert self.size is not None
    height, width = height_width(self.size)
    if image.width < width or image.height < height:
      raise ValueError(
          f'central_crop cannot cut {height} x {width} out of an image of '
          f'{image.height} x {image.width}. Put {{"op": "resize", "shorter": '
          f'{max(height, width)}}} before it.')
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


@dataclasses.dataclass(frozen=True)
class InceptionCrop:
  """Cuts a random part of random shape and resizes it (Inception crop).

  The crop's area is uniform in the given range, its aspect ratio uniform in
  the logarithm. Szegedy et al., "Going Deeper with Convolutions", section 6
  (https://arxiv.org/abs/1409.4842): "sampling of various sized patches of the
  image whose size is distributed evenly between 8 % and 100 % of the image
  area with aspect ratio constrained to the interval [3/4, 4/3]". The ViT code
  takes 5 % to 100 %, the default here.

  Attributes:
    size: of the result; default: the resolution.
    area: smallest and largest share of the image's area, in (0, 1].
    aspect: smallest and largest width / height of the crop.
    method: interpolation.
  """
  size: Size | None = None
  area: tuple[float, float] = (0.05, 1.0)
  aspect: tuple[float, float] = (3 / 4, 4 / 3)
  method: Method = 'bilinear'

  def __post_init__(self):
    if not 0 < self.area[0] <= self.area[1] <= 1:
      raise ValueError(
          f'area must be two shares, 0 < low <= high <= 1; got {self.area}.')
    if not 0 < self.aspect[0] <= self.aspect[1]:
      raise ValueError(
          f'aspect must be two ratios, 0 < low <= high; got {self.aspect}.')

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    assert self.size is not None
    height, width = height_width(self.size)
    left, top, w, h = self.window(image.width, image.height, rng)
    return image.resize(
        (width, height), METHODS[self.method],
        box=(left, top, left + w, top + h))

  def window(
      self, width: int, height: int, rng: np.random.Generator,
  ) -> tuple[int, int, int, int]:
    """Returns (left, top, width, height) of a crop inside the image."""
    low, high = math.log(self.aspect[0]), math.log(self.aspect[1])
    # A crop of drawn shape may not fit; Inception draws again. Ten times are
    # enough for all but extreme panoramas, which are cut in the middle.
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


@dataclasses.dataclass(frozen=True)
class PadCrop:
  """Shifts at random: pads with black, then cuts the same size (CIFAR style).

  He et al. (https://arxiv.org/abs/1512.03385), section 4.2: "4 pixels are
  padded on each side, and a 32x32 crop is randomly sampled".

  Attributes:
    padding: pixels on each side.
  """
  padding: int = 4

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    left, top = (
        int(d) for d in rng.integers(-self.padding, self.padding + 1, 2))
    # `crop` beyond the edges fills with zeros: the padding costs no copy.
    return image.crop((left, top, left + image.width, top + image.height))


@dataclasses.dataclass(frozen=True)
class Flip:
  """Mirrors left to right.

  Attributes:
    probability: of mirroring.
  """
  probability: float = 0.5

  def __post_init__(self):
    if not 0 <= self.probability <= 1:
      raise ValueError(
          f'probability must lie in [0, 1]; got {self.probability}.')

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    if rng.random() >= self.probability:
      return image
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


# --------------------------------------------------------------- configuration

OPS: dict[str, type] = {
    'central_crop': CentralCrop,
    'flip': Flip,
    'inception_crop': InceptionCrop,
    'pad_crop': PadCrop,
    'randaugment': randaugment.RandAugment,
    'resize': Resize,
}
# Those that move pixels, and do not ask what they mean.
ANY_CHANNELS = ('central_crop', 'flip', 'inception_crop', 'pad_crop', 'resize')


def build(
    sections: Sequence[Mapping[str, Any]], *, size: tuple[int, int],
    where: str, any_channels: bool = False,
) -> tuple[Op, ...]:
  """Returns the operations that sections such as {'op': 'flip'} describe.

  Args:
    sections: a mapping each, with the operation's name under `op`.
    size: height and width for operations that have none of their own.
    where: the place in the config, for messages.
    any_channels: images are no 8-bit grey or RGB: only what moves pixels will
      do.

  Raises:
    ValueError: for an unknown operation or setting, naming the nearest, or one
      that is for colours.
  """
  ops = []
  for i, section in enumerate(sections):
    place = f'{where}[{i}]'
    settings = dict(section)
    if 'op' not in settings:
      raise ValueError(
          f'{place} needs the key op: {dict(section)!r}. '
          f'Known: {", ".join(OPS)}.')
    name = settings.pop('op')
    if name == 'decode':
      raise ValueError(
          f'{place}: decode always comes first by itself; leave it out.')
    schema.check_name(name, list(OPS), what=f'{place}.op')
    if any_channels and name not in ANY_CHANNELS:
      raise ValueError(
          f'{place}: {name} is for 8-bit grey or RGB, but data.channels and '
          'data.dtype say that images are other. What works on any: '
          f'{", ".join(ANY_CHANNELS)}.')
    op: Any = schema.parse(OPS[name], settings, where=f'{place} ({name})')
    wants_size = getattr(op, 'size', size) is None
    if wants_size and getattr(op, 'shorter', None) is None:
      op = dataclasses.replace(op, size=size)
    ops.append(op)
  return tuple(ops)
