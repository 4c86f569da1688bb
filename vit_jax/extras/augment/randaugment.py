"""RandAugment: random operations of one shared strength (arXiv 1909.13719).

The paper does not define the magnitude for each operation (figure 2), so there
are two definitions. 'growing': a larger magnitude always changes the image
more, and 0 changes nothing. 'published': what the code behind later papers
computes, where magnitude 0 removes nearly all colour, and 10 and 20 invert the
image instead of solarising it.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Literal

import numpy as np
from PIL import Image
from PIL import ImageChops
from PIL import ImageEnhance
from PIL import ImageOps

from vit_jax import fields
from vit_jax.data.images import ops as ops_lib

_GREY = 128  # Fills uncovered areas.
_BILINEAR, _NEAREST = Image.Resampling.BILINEAR, Image.Resampling.NEAREST


def _affine(
    image: Image.Image, *matrix: float,
    method: Image.Resampling = _BILINEAR) -> Image.Image:
  return image.transform(
      image.size, Image.Transform.AFFINE, matrix, method,
      fillcolor=(_GREY,) * len(image.getbands()))


def _rotate(
    image: Image.Image, degrees: float,
    method: Image.Resampling = _BILINEAR) -> Image.Image:
  return image.rotate(
      degrees, method, fillcolor=(_GREY,) * len(image.getbands()))


def _translate(
    image: Image.Image, x: float, y: float,
    method: Image.Resampling = _BILINEAR) -> Image.Image:
  return _affine(
      image, 1, 0, x * image.width, 0, 1, y * image.height, method=method)


def _enhance(
    kind: Callable, base: float, slope: float) -> Callable[..., Image.Image]:
  return lambda image, s, *_: kind(image).enhance(base + slope * s)


# Functions of the image and a strength in [-1, 1] of random sign; 1 is the
# paper's magnitude 10. Ranges: AutoAugment (Cubuk et al., 2018, table 6).
GROWING: Mapping[str, Callable[[Image.Image, float], Image.Image]] = {
    'identity': lambda image, s: image,
    'auto_contrast': lambda image, s: ImageOps.autocontrast(image),
    'equalize': lambda image, s: ImageOps.equalize(image),
    'rotate': lambda image, s: _rotate(image, 30 * s),
    'solarize': lambda image, s: ImageOps.solarize(
        image, round(256 * (1 - abs(s)))),
    'color': _enhance(ImageEnhance.Color, 1, 0.9),
    'posterize': lambda image, s: ImageOps.posterize(
        image, 8 - round(4 * abs(s))),
    'contrast': _enhance(ImageEnhance.Contrast, 1, 0.9),
    'brightness': _enhance(ImageEnhance.Brightness, 1, 0.9),
    'sharpness': _enhance(ImageEnhance.Sharpness, 1, 0.9),
    'shear_x': lambda image, s: _affine(image, 1, 0.3 * s, 0, 0, 1, 0),
    'shear_y': lambda image, s: _affine(image, 1, 0, 0, 0.3 * s, 1, 0),
    'translate_x': lambda image, s: _translate(image, 150 / 331 * s, 0),
    'translate_y': lambda image, s: _translate(image, 0, 150 / 331 * s),
}


def _cutout(
    image: Image.Image, strength: float, rng: np.random.Generator,
) -> Image.Image:
  """Fills a square around a random pixel with grey, clipped at the edges."""
  half = int(40 / 224 * strength * min(image.size))
  x, y = int(rng.integers(image.width)), int(rng.integers(image.height))
  image = image.copy()
  image.paste((_GREY,) * len(image.getbands()),
              (x - half, y - half, x + half, y + half))
  return image


def _contrast(image: Image.Image, factor: float) -> Image.Image:
  """Blends with the grey level 224 x 224 / 256, not the mean of the image."""
  grey = Image.new(image.mode, image.size, (196,) * len(image.getbands()))
  return Image.blend(grey, image, factor)


def _posterize(image: Image.Image, bits: int) -> Image.Image:
  # TensorFlow shifts 8-bit integers by at most 7 bits.
  shift = min(7, 8 - bits)
  return _lookup(image, lambda v: v >> shift << shift)


def _lookup(image: Image.Image, value: Callable[[int], int]) -> Image.Image:
  """Maps pixel values by a lookup table."""
  return image.point([value(v) for v in range(256)] * len(image.getbands()))


# Functions of the image, a strength (magnitude / 10, may exceed 1), the same
# with a random sign, and a generator. Operations and ranges: `randaugment` of
# TensorFlow's EfficientNet for TPUs, used by big_vision, AugReg (arXiv
# 2106.10270) and "Better plain ViT baselines" (2205.01580), with its errors:
# the threshold of solarisation has 8 bits, so 256 wraps to 0, and the grey
# level of contrast is the number of pixels / 256. That number and the lengths
# of 100 and 40 pixels are those at 224 x 224, whatever the resolution.
PUBLISHED: Mapping[str, Callable[
    [Image.Image, float, float, np.random.Generator], Image.Image]] = {
    'auto_contrast': lambda image, s, r, rng: ImageOps.autocontrast(image),
    'equalize': lambda image, s, r, rng: ImageOps.equalize(image),
    'invert': lambda image, s, r, rng: ImageChops.invert(image),
    'rotate': lambda image, s, r, rng: _rotate(image, 30 * r, _NEAREST),
    'posterize': lambda image, s, r, rng: _posterize(image, int(4 * s)),
    'solarize': lambda image, s, r, rng: ImageOps.solarize(
        image, int(256 * s) % 256),
    'color': _enhance(ImageEnhance.Color, 0.1, 1.8),
    'contrast': lambda image, s, r, rng: _contrast(image, 0.1 + 1.8 * s),
    'brightness': _enhance(ImageEnhance.Brightness, 0.1, 1.8),
    'sharpness': _enhance(ImageEnhance.Sharpness, 0.1, 1.8),
    # Pillow's origin is the corner of pixel (0, 0), half a pixel away.
    'shear_x': lambda image, s, r, rng: _affine(
        image, 1, 0.3 * r, -0.15 * r, 0, 1, 0, method=_NEAREST),
    'shear_y': lambda image, s, r, rng: _affine(
        image, 1, 0, 0, 0.3 * r, 1, -0.15 * r, method=_NEAREST),
    'translate_x': lambda image, s, r, rng: _translate(
        image, 100 / 224 * r, 0, _NEAREST),
    'translate_y': lambda image, s, r, rng: _translate(
        image, 0, 100 / 224 * r, _NEAREST),
    'cutout': lambda image, s, r, rng: _cutout(image, s, rng),
    'solarize_add': lambda image, s, r, rng: _lookup(
        image, lambda v: min(255, v + int(110 * s)) if v < 128 else v),
}

# With 'published', magnitude 20 keeps all 8 bits when posterising.
_MAX_MAGNITUDE = {'growing': 10, 'published': 20}


@dataclasses.dataclass(frozen=True)
class RandAugment(ops_lib.Operation):
  """Applies random operations of one shared strength.

  Attributes:
    num_layers: operations per image, drawn with replacement (N in the paper).
    magnitude: their strength (M in the paper), at most 10 (20
      if 'published').
    ranges: 'growing' (14 operations) or 'published' (16).
    magnitude_std: standard deviation of normal noise on the magnitude of each
      operation, as in timm ('rand-m9-mstd0.5').
  """
  num_layers: int = 2
  magnitude: float = 9
  ranges: Literal['growing', 'published'] = 'growing'
  magnitude_std: float = 0.0

  def __post_init__(self):
    fields.check_range(self, 'num_layers', 'magnitude_std')
    fields.check_range(self, 'magnitude', most=_MAX_MAGNITUDE[self.ranges])

  def __call__(
      self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    growing, published = tuple(GROWING.values()), tuple(PUBLISHED.values())
    is_growing = self.ranges == 'growing'
    for index in rng.integers(
        len(growing if is_growing else published), size=self.num_layers):
      strength = self.magnitude / 10
      if self.magnitude_std:
        noisy = rng.normal(self.magnitude, self.magnitude_std)
        strength = min(max(noisy, 0), _MAX_MAGNITUDE[self.ranges]) / 10
      signed = strength if rng.random() < 0.5 else -strength
      image = (growing[index](image, signed) if is_growing else
               published[index](image, strength, signed, rng))
    return image


# Ranges of the 'wide' space relative to `GROWING`.
_WIDE = {
    'rotate': 135 / 30, 'shear_x': 0.99 / 0.3, 'shear_y': 0.99 / 0.3,
    'translate_x': 32 / 224 / (150 / 331),
    'translate_y': 32 / 224 / (150 / 331), 'posterize': 6 / 4,
    'color': 0.99 / 0.9, 'contrast': 0.99 / 0.9, 'brightness': 0.99 / 0.9,
    'sharpness': 0.99 / 0.9}


@dataclasses.dataclass(frozen=True)
class TrivialAugment(ops_lib.Operation):
  """Applies one random operation of random strength (arXiv 2103.10158).

  Attributes:
    space: 'wide', or 'rand' for the ranges of RandAugment. The paper's
      translations by up to 32 pixels are fractions of 224 here.
  """
  space: Literal['wide', 'rand'] = 'wide'

  def __call__(
      self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    names = tuple(GROWING)
    name = names[int(rng.integers(len(names)))]
    strength = int(rng.integers(31)) / 30  # 31 levels, as in the paper.
    scale = _WIDE.get(name, 1.0) if self.space == 'wide' else 1.0
    sign = 1 if rng.random() < 0.5 else -1
    return GROWING[name](image, sign * scale * strength)
