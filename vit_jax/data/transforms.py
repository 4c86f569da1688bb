"""Image operations of the host: a record each, made from a section of a config.

An operation takes an image, Pillow's or `Bands`, and a NumPy random generator
and returns another; it holds its settings and nothing else, so it can travel to
a worker process, and its result depends on its two arguments alone. Pillow is
kept from one operation to the next because its resize reads a crop in place.

A pipeline is `decode`, then the operations in their order, then `to_array`.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import io
import math
import typing
from typing import Any, Literal, Protocol

from jaxtyping import Real, Shaped
import numpy as np
import PIL
from PIL import Image
from PIL import ImageOps

from vit_jax import records
from vit_jax.data import bands
from vit_jax.data import randaugment

Size = int | tuple[int, int]  # One side of a square, or (height, width).
Method = Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos']

_METHODS = {
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


# ------------------------------------------------------------------- decoding


def decode(
    image: bytes | Shaped[np.ndarray, '...'], *, channels: int,
) -> Image.Image:
  """Returns the pixels of an image file or array as grey or RGB of 8 bits.

  | a file of          | 1 channel           | 3 channels                      |
  |--------------------|---------------------|---------------------------------|
  | grey               | as it is            | three times                     |
  | RGB                | its luma            | as it is                        |
  | palette            | the luma of colours | its colours                     |
  | RGBA, grey + alpha | laid on white first | laid on white                   |
  | CMYK, YCbCr, Lab   | the luma of RGB     | RGB, by Pillow, without profile |
  | 16-bit grey        | the upper 8 bits    | these three times               |
  | 16-bit colour      | as Pillow reads it: the upper 8 bits                  |
  | 32-bit integers    | as 16-bit grey; an error where a value is larger      |
  | floats             | an error                                              |

  All else, any number of channels and values of 16 bits or floats, is carried
  as it is: `bands.decode`.

  Turned upright as its EXIF orientation says (a defective EXIF block is
  passed over: the pixels are what matters). Transparency is laid on white,
  the paper that such pictures are drawn for. Of an animation, or of a TIFF of
  several pages, the first.

  Args:
    image: the bytes of a JPEG, PNG, WebP, GIF, BMP, ... or .npy file, or uint8
      pixels [height, width], [height, width, 1] or [height, width, 3].
    channels: 1 for grey (ITU-R 601 luma), 3 for RGB.

  Raises:
    ValueError: if the bytes are no whole image that Pillow can read.
  """
  mode = {1: 'L', 3: 'RGB'}[channels]
  if not isinstance(image, np.ndarray) and image.startswith(bands.NUMPY):
    image = bands.load_array(image)
  if isinstance(image, np.ndarray):
    if image.dtype != np.uint8 or image.shape[2:] not in ((), (1,), (3,)):
      raise ValueError(
          f'its pixels are {image.dtype} {list(image.shape)}, but uint8 '
          f'[height, width, 1 or 3] was expected. Say how it is: data.channels '
          'and data.dtype, uint16 or float32 with their data.value_range.')
    pixels = Image.fromarray(image[..., 0] if image.shape[2:] == (1,)
                             else image)
    return pixels if pixels.mode == mode else pixels.convert(mode)
  try:
    pixels = Image.open(io.BytesIO(image))
    pixels.load()
  except PIL.UnidentifiedImageError as error:
    raise ValueError(
        f'not an image in a format that Pillow reads ({len(image)} bytes, '
        f'beginning {image[:8]!r})') from error
  # Pillow's readers raise whatever their parsing meets (OSError, SyntaxError,
  # EOFError, struct.error, zlib.error, DecompressionBombError ...): to a user
  # each of them means the same, this file is bad.
  except Exception as error:
    raise ValueError(
        f'not a readable image: {type(error).__name__}: {error} '
        f'({len(image)} bytes)') from error
  return convert(pixels, channels=channels)


def convert(image: Image.Image, *, channels: int) -> Image.Image:
  """Returns an opened image, upright, as `decode` does; may change it.

  Args:
    image: of any mode.
    channels: 1 for grey, 3 for RGB.

  Raises:
    ValueError: if its pixels are no 8- or 16-bit numbers.
  """
  return _flatten(_upright(image), {1: 'L', 3: 'RGB'}[channels])


def _upright(image: Image.Image) -> Image.Image:
  # A broken EXIF block says nothing of the orientation, and spoils nothing.
  with contextlib.suppress(Exception):
    ImageOps.exif_transpose(image, in_place=True)
  return image


def _flatten(image: Image.Image, mode: str) -> Image.Image:
  """Returns the image in `mode` ('L' or 'RGB'), without transparency."""
  if image.mode in ('I', 'F') or image.mode.startswith('I;'):
    return _narrow(image).convert(mode)
  has_alpha = image.mode in ('LA', 'PA', 'La', 'RGBA', 'RGBa')
  if has_alpha or 'transparency' in image.info:
    if image.mode in ('La', 'RGBa'):  # Premultiplied: one way out each.
      image = image.convert({'La': 'LA', 'RGBa': 'RGBA'}[image.mode])
    image = image.convert('RGBA')
    paper = Image.new('RGBA', image.size, 'white')
    image = Image.alpha_composite(paper, image)
  return image if image.mode == mode else image.convert(mode)


def _narrow(image: Image.Image) -> Image.Image:
  """Returns 16-bit grey as 8-bit: Pillow's own conversion would clip it."""
  values = np.asarray(image)
  if values.dtype.kind == 'f' or values.min() < 0 or values.max() > 0xffff:
    raise ValueError(
        f'pixels of mode {image.mode} span {values.min()} to {values.max()}, '
        'but 0 to 65535 was expected. Convert the file to 8 or 16 bits.')
  return Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))


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
  if isinstance(image, bands.Bands):
    return image.pixels
  pixels = np.asarray(image)
  return pixels[..., None] if pixels.ndim == 2 else pixels


# ---------------------------------------------------------- crops and resizes


@dataclasses.dataclass(frozen=True)
class Resize:
  """Resizes to an exact size, or so that the shorter side has a length.

  Pillow widens its filter when it shrinks an image (antialiasing).

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
    return image.resize((width, height), _METHODS[self.method])


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
    left, top, w, h = self._window(image.width, image.height, rng)
    return image.resize(
        (width, height), _METHODS[self.method],
        box=(left, top, left + w, top + h))

  def _window(
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
    records.check_name(name, list(OPS), what=f'{place}.op')
    if any_channels and name not in ANY_CHANNELS:
      raise ValueError(
          f'{place}: {name} is for 8-bit grey or RGB, but data.channels and '
          'data.dtype say that images are other. What works on any: '
          f'{", ".join(ANY_CHANNELS)}.')
    op: Any = records.parse(OPS[name], settings, where=f'{place} ({name})')
    wants_size = getattr(op, 'size', size) is None
    if wants_size and getattr(op, 'shorter', None) is None:
      op = dataclasses.replace(op, size=size)
    ops.append(op)
  return tuple(ops)
