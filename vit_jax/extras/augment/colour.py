"""Random changes of colours and pixels, applied by Pillow to 8-bit images."""

import dataclasses
import math
from typing import ClassVar

import numpy as np
from PIL import Image
from PIL import ImageEnhance
from PIL import ImageFilter

from vit_jax import fields
from vit_jax.data.images import ops as ops_lib
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class ColorJitter(ops_lib.RandomOp):
  """Changes brightness, contrast, saturation and hue, in random order.

  Factors are uniform in [1 - x, 1 + x]; the hue turns by up to `hue` of a full
  circle. The defaults are SimCLR's (arXiv 2002.05709, appendix A) at
  strength 0.5.
  """
  masks: ClassVar = 'stays'

  probability: float = 0.8
  brightness: float = 0.4
  contrast: float = 0.4
  saturation: float = 0.4
  hue: float = 0.1

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'brightness', 'contrast', 'saturation')
    fields.check_range(self, 'hue', most=0.5)

  def change(
      self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    enhancers = ((ImageEnhance.Brightness, self.brightness),
                 (ImageEnhance.Contrast, self.contrast),
                 (ImageEnhance.Color, self.saturation))
    for i in rng.permutation(len(enhancers) + 1):
      if i == len(enhancers):
        image = _turn_hue(image, rng.uniform(-self.hue, self.hue))
      else:
        enhancer, most = enhancers[i]
        factor = rng.uniform(max(0.0, 1 - most), 1 + most)
        image = enhancer(image).enhance(factor)
    return image


def _turn_hue(image: Image.Image, turn: float) -> Image.Image:
  if image.mode == 'L':
    return image
  hue, saturation, value = image.convert('HSV').split()
  hue = hue.point([(v + round(256 * turn)) % 256 for v in range(256)])
  return Image.merge('HSV', (hue, saturation, value)).convert(image.mode)


@dataclasses.dataclass(frozen=True)
class Grayscale(ops_lib.RandomOp):
  """Removes the colours with the given probability (SimCLR: 0.2)."""
  masks: ClassVar = 'stays'

  probability: float = 0.2

  def change(
      self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return image.convert('L').convert(image.mode)


@dataclasses.dataclass(frozen=True)
class Blur(ops_lib.RandomOp):
  """Blurs with a Gaussian of random sigma in pixels (SimCLR: 0.1 to 2)."""
  masks: ClassVar = 'stays'

  sigma: tuple[float, float] = (0.1, 2.0)

  def __post_init__(self):
    super().__post_init__()
    if not 0 <= self.sigma[0] <= self.sigma[1]:
      raise UserError(
          f'sigma must be two lengths, 0 <= low <= high; got {self.sigma}.')

  def change(
      self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(*self.sigma)))


@dataclasses.dataclass(frozen=True)
class RandomErasing(ops_lib.RandomOp):
  """Fills a random rectangle with noise (arXiv 1708.04896, algorithm 1).

  Put it after the crop.

  Attributes:
    probability: share of the images that are changed.
    area: range of the rectangle's share of the image.
    aspect: range of its height / width, whose logarithm is uniform.
  """
  masks: ClassVar = 'stays'
  removes_parts: ClassVar = True

  area: tuple[float, float] = (0.02, 0.4)
  aspect: tuple[float, float] = (0.3, 1 / 0.3)

  def __post_init__(self):
    super().__post_init__()
    if not (0 < self.area[0] <= self.area[1] <= 1
            and 0 < self.aspect[0] <= self.aspect[1]):
      raise UserError(
          'area must be two fractions and aspect two ratios, low <= high; got '
          f'{self.area} and {self.aspect}.')

  def change(
      self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    for _ in range(10):  # Rectangles that do not fit are drawn again.
      area = image.width * image.height * rng.uniform(*self.area)
      low, high = map(math.log, self.aspect)
      aspect = math.exp(rng.uniform(low, high))
      height, width = round((area * aspect)**0.5), round((area / aspect)**0.5)
      if 0 < height <= image.height and 0 < width <= image.width:
        left = int(rng.integers(image.width - width + 1))
        top = int(rng.integers(image.height - height + 1))
        pixels = np.array(image)
        hole = pixels[top:top + height, left:left + width]
        hole[...] = rng.integers(0, 256, hole.shape, dtype=np.uint8)
        return Image.fromarray(pixels)
    return image
