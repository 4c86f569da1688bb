"""Image operations of the host: pure functions of an image and a generator.

Each operation is a record of its settings. The pipeline is `decode`, the
operations in order, then `to_array`. Images stay Pillow images (or what
`decode` returns in their place) between operations, because resizing a box
needs no copy.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any, ClassVar, Literal

from jaxtyping import Real
import numpy as np
from PIL import Image

from vit_jax import registry
from vit_jax import schema
from vit_jax.data.augment import operation
from vit_jax.data.images import resize as resize_lib

Picture = Any  # A result of `decode.decode`.
Op = operation.Operation


def to_array(
    image: Picture, *, size: tuple[int, int],
) -> Real[np.ndarray, 'height width channels']:
  """Returns the pixels; raises a ValueError if they are not of `size`."""
  height, width = size
  if image.size != (width, height):
    raise ValueError(
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
class CentralCrop(operation.Operation):
  """Crops the centre; default size: the resolution.

  If a margin is odd, `rounding` 'tensorflow' rounds half of it down, and
  'torchvision' to the nearest even number.
  """
  masks: ClassVar = 'follows'
  any_channels: ClassVar = True
  is_random: ClassVar = False

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
      raise ValueError(
          f'central_crop of {height} x {width} does not fit into an image of '
          f'{image.height} x {image.width}. Put {{"op": "resize", "shorter": '
          f'{max(height, width)}}} before it.')
    left, top = (
        margin // 2 if self.rounding == 'tensorflow' else round(margin / 2)
        for margin in (image.width - width, image.height - height))
    return image.crop((left, top, left + width, top + height))


@dataclasses.dataclass(frozen=True)
class InceptionCrop(operation.Operation):
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
  masks: ClassVar = 'nearest'
  any_channels: ClassVar = True

  size: resize_lib.Size | None = None
  area: tuple[float, float] = (0.05, 1.0)
  aspect: tuple[float, float] = (3 / 4, 4 / 3)
  method: resize_lib.Method = 'bilinear'
  sampler: Literal['tf', 'torch'] = 'torch'

  def __post_init__(self):
    resize_lib.store_pairs(self, 'size')
    if not 0 < self.area[0] <= self.area[1] <= 1:
      raise ValueError(
          f'area must be two fractions, 0 < low <= high <= 1; got {self.area}.')
    if not 0 < self.aspect[0] <= self.aspect[1]:
      raise ValueError(
          f'aspect must be two ratios, 0 < low <= high; got {self.aspect}.')

  def __call__(self, image: Picture, rng: np.random.Generator) -> Picture:
    assert self.size is not None
    height, width = resize_lib.height_width(self.size)
    left, top, w, h = self.window(image.width, image.height, rng)
    return resize_lib.resize(
        image, (width, height), method=self.method,
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
class PadCrop(operation.Operation):
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
class Flip(operation.RandomOp):
  """Mirrors left to right with the given probability."""
  masks: ClassVar = 'follows'
  any_channels: ClassVar = True

  def change(self, image: Picture, rng: np.random.Generator) -> Picture:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def for_mask(op: Op, *, where: str) -> Op | None:
  """Returns the operation for the mask of an image; None if it stays as it is.

  Raises:
    ValueError: for an operation that masks cannot follow; names the setting
      `where`.
  """
  if op.masks == 'none':
    raise ValueError(
        f'{where} has {type(op).__name__}, which does not apply to masks. Use '
        'crops, resize, flip and changes of colour.')
  if op.masks == 'nearest':
    return dataclasses.replace(op, method='nearest')  # type: ignore[type-var]
  return op if op.masks == 'follows' else None


def check_whole(ops: Sequence[Op], *, where: str) -> None:
  """Raises a ValueError unless the operations resize the whole image."""
  if not all(op.keeps_whole for op in ops):
    raise ValueError(
        f'{where}: {to_sections(ops)} may crop images, but the classes of all '
        "pixels of an image need a resize only: [{'op': 'resize'}].")


def to_sections(ops: Sequence[Op]) -> list[dict[str, Any]]:
  """Returns operations as plain data, with all settings; inverse of `build`."""
  names = {target: name for name, target in registry.OPERATIONS.items()}

  def name_of(kind: type) -> str:
    target = f'{kind.__module__}:{kind.__qualname__}'
    return names.get(target, target)

  return [{'op': name_of(type(op)), **{
      name: value for name, value in schema.to_plain(op).items()
      if value is not None}} for op in ops]


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
  ops, known = [], ', '.join(registry.OPERATIONS)
  for i, section in enumerate(sections):
    place, settings = f'{where}[{i}]', dict(section)
    if 'op' not in settings:
      raise ValueError(
          f'{place} needs the key op: {settings!r}. Known: {known}.')
    name = settings.pop('op')
    kind = registry.find(
        name, registry.OPERATIONS, what=f'{place}.op',
        kind=operation.Operation)
    if any_channels and not kind.any_channels:
      raise ValueError(
          f'{place}: {name} needs 8-bit grey or RGB images, unlike '
          'data.channels and data.dtype. Remove it.')
    op = schema.parse(kind, settings, where=f'{place} ({name})')
    ops.append(op.at(size))
  return tuple(ops)
