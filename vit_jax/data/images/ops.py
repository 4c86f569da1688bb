"""Image operations of the host: pure functions of an image and a generator.

Each operation is a record of its settings. The pipeline is `decode`, the
operations in order, then `to_array`. Images stay Pillow images (or what
`decode` returns in their place) between operations, because resizing a box
needs no copy.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any, ClassVar, Literal

from jaxtyping import Real
import numpy as np
from PIL import Image

from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax.data.images import image_file
from vit_jax.data.images import resize as resize_lib
from vit_jax.exceptions import UserError

Picture = Any  # A result of `decode.decode`.


class Operation:
  """Base of all operations, which `registry.OPERATIONS` lists.

  An operation is a frozen dataclass. Its fields are its keys in
  `data.train_ops` and `data.eval_ops`; a field `size` that is None becomes the
  resolution. It maps an image and a generator to an image.
  """
  # The mask of an image 'follows' the operation, also with interpolation
  # 'nearest', or 'stays' as it is; 'none' is an error.
  masks: ClassVar[Literal['follows', 'nearest', 'stays', 'none']] = 'none'
  # Whether parts of the image may be missing in the result, without a crop.
  removes_parts: ClassVar[bool] = False
  # Whether images need not be 8-bit grey or RGB.
  any_channels: ClassVar[bool] = False

  @property
  def least(self) -> tuple[int, int] | None:
    """Smallest height and width of the result; None if unknown or random."""
    return None

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    """Returns the changed image: a result of `decode.decode`."""
    raise NotImplementedError

  def at(self, resolution: tuple[int, int]) -> 'Operation':
    """Returns the operation with `size`, if None, set to the resolution."""
    if getattr(self, 'size', resolution) is None:
      return dataclasses.replace(self, size=resolution)  # type: ignore[type-var]
    return self

  def scaled(
      self, scale: Callable[[tuple[int, int]], tuple[int, int]]) -> 'Operation':
    """Returns the operation for another resolution; `scale` changes sizes."""
    size = getattr(self, 'size', None)
    return self if size is None else dataclasses.replace(
        self, size=scale(size))  # type: ignore[type-var]


@dataclasses.dataclass(frozen=True)
class RandomOp(Operation):
  """An operation that changes only a share of the images."""
  probability: float = 0.5

  def __post_init__(self):
    fields.check_range(self, 'probability', most=1)

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    return self.change(image, rng) if rng.random() < self.probability else image

  def change(self, image: Picture, rng: np.random.Generator) -> Picture:
    """Returns the changed image."""
    raise NotImplementedError


def to_array(
    image: Picture, *, size: tuple[int, int],
) -> Real[np.ndarray, 'height width channels']:
  """Returns the pixels; raises a UserError if they are not of `size`."""
  height, width = size
  if image.size != (width, height):
    raise UserError(
        f'The operations end with an image of {image.height} x {image.width}, '
        f'but the model takes {height} x {width} (data.resolution). Finish '
        'with a resize or central_crop without size, which is then the '
        'resolution.')
  return pixels(image)


def pixels(image: Picture) -> Real[np.ndarray, 'height width channels']:
  """Returns the pixels of an image."""
  array = np.asarray(image)
  return array[..., None] if array.ndim == 2 else array


@dataclasses.dataclass(frozen=True)
class Resize(Operation):
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

  size: resize_lib.Size | None = None
  shorter: int | None = None
  cover: resize_lib.Size | None = None
  method: resize_lib.Method = 'bilinear'
  antialias: bool = True
  rounding: resize_lib.Rounding = 'tensorflow'

  def __post_init__(self):
    if [self.size, self.shorter, self.cover].count(None) < 2:
      raise UserError('resize takes one of size, shorter and cover.')
    resize_lib.store_pairs(self, 'size', 'cover')
    if not self.antialias and self.method not in resize_lib.POINTWISE:
      raise UserError(
          'antialias=False needs the method '
          f'{" or ".join(resize_lib.POINTWISE)}; got {self.method!r}.')

  def __call__(self, image: Any, rng: np.random.Generator) -> Any:
    height, width = self.target(image.height, image.width)
    if image.size == (width, height):
      return image
    # 1 x 60,000 to a shorter side of 224 would be 3 billion pixels.
    if width * height > max(image_file.MAX_PIXELS, image.width * image.height):
      raise UserError(
          f'an image of {image.height} x {image.width} would be resized to '
          f'{height:,} x {width:,}, more than {image_file.MAX_PIXELS:,} '
          'pixels. Crop it first.')
    return resize_lib.resize(
        image, (width, height), method=self.method, antialias=self.antialias)

  @property
  def least(self) -> tuple[int, int]:
    """Smallest height and width of a resized image."""
    return resize_lib.height_width(self.size or self.cover or self.shorter or 1)

  def at(self, resolution: tuple[int, int]) -> Operation:
    return self if self.shorter or self.cover else super().at(resolution)

  def scaled(
      self, scale: Callable[[tuple[int, int]], tuple[int, int]],
  ) -> Operation:
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


@dataclasses.dataclass(frozen=True)
class CentralCrop(Operation):
  """Crops the centre; default size: the resolution.

  If a margin is odd, `rounding` 'tensorflow' rounds half of it down, and
  'torchvision' to the nearest even number.
  """
  masks: ClassVar = 'follows'
  any_channels: ClassVar = True

  size: resize_lib.Size | None = None
  rounding: resize_lib.Rounding = 'tensorflow'

  def __post_init__(self):
    resize_lib.store_pairs(self, 'size')

  @property
  def least(self) -> tuple[int, int]:
    """Height and width of the result."""
    return resize_lib.height_width(self.size or 1)

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    height, width = self.least
    if image.width < width or image.height < height:
      raise UserError(
          f'central_crop of {height} x {width} does not fit into an image of '
          f'{image.height} x {image.width}. Put {{"op": "resize", "shorter": '
          f'{max(height, width)}}} before it.')
    left, top = (
        margin // 2 if self.rounding == 'tensorflow' else round(margin / 2)
        for margin in (image.width - width, image.height - height))
    return image.crop((left, top, left + width, top + height))


@dataclasses.dataclass(frozen=True)
class PadCrop(Operation):
  """Pads with zeros and crops the original size at random (CIFAR style).

  He et al. (https://arxiv.org/abs/1512.03385), section 4.2.
  """
  masks: ClassVar = 'follows'
  any_channels: ClassVar = True

  padding: int = 4  # Pixels on each side.

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    left, top = rng.integers(-self.padding, self.padding + 1, 2).tolist()
    # `crop` fills with zeros beyond the edges.
    return image.crop((left, top, left + image.width, top + image.height))


@dataclasses.dataclass(frozen=True)
class Flip(RandomOp):
  """Mirrors left to right with the given probability."""
  masks: ClassVar = 'follows'
  any_channels: ClassVar = True

  def change(self, image: Picture, rng: np.random.Generator) -> Picture:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def to_sections(ops: Sequence[Operation]) -> list[dict[str, Any]]:
  """Returns operations as plain data, with all settings; inverse of `build`."""
  names = {target: name for name, target in registry.OPERATIONS.items()}

  def name_of(kind: type) -> str:
    target = f'{kind.__module__}:{kind.__qualname__}'
    return names.get(target, target)

  return [{'op': name_of(type(op)), **{
      name: value for name, value in schema.to_plain(op).items()
      if value is not None}} for op in ops]


def build(
    sections: Sequence[Any], *, size: tuple[int, int], where: str,
    any_channels: bool = False,
) -> tuple[Operation, ...]:
  """Builds operations from sections such as {'op': 'flip'}.

  `size` is the default (height, width), and `where` the config key for
  messages. With `any_channels`, images are not 8-bit grey or RGB.

  Raises:
    UserError: for an unknown or unsuitable operation, or an unknown setting.
  """
  ops, known = [], ', '.join(registry.OPERATIONS)
  for i, section in enumerate(sections):
    place = f'{where}[{i}]'
    settings = dict(schema.check_section(section, where=place))
    if 'op' not in settings:
      raise UserError(
          f'{place} needs the key op: {settings!r}. Known: {known}.')
    name = settings.pop('op')
    kind = registry.find(
        name, registry.OPERATIONS, what=f'{place}.op', kind=Operation)
    if any_channels and not kind.any_channels:
      raise UserError(
          f'{place}: {name} needs 8-bit grey or RGB images, unlike '
          'data.channels and data.dtype. Remove it.')
    op = schema.parse(kind, settings, where=f'{place} ({name})')
    ops.append(op.at(size))
  return tuple(ops)
