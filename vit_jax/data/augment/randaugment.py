"""RandAugment: random operations of one shared strength (arXiv 1909.13719).

In two readings, for the paper's own (figure 2) leaves open what a magnitude
means for each operation. 'growing': a larger one always changes the image
more, and 0 changes nothing. 'published': the code that the recipes of later
papers were tuned with, where magnitude 0 takes away nearly all colour, and 10
leaves a solarised image as it is.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Literal

import numpy as np
from PIL import Image
from PIL import ImageChops
from PIL import ImageEnhance
from PIL import ImageOps

_GREY = 128  # What geometry uncovers is filled with mid-grey.


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
  return image.transform(
      image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR,
      fillcolor=(_GREY,) * len(image.getbands()))


def _rotate(image: Image.Image, degrees: float) -> Image.Image:
  return image.rotate(
      degrees, Image.Resampling.BILINEAR,
      fillcolor=(_GREY,) * len(image.getbands()))


def _translate(image: Image.Image, x: float, y: float) -> Image.Image:
  return _affine(image, 1, 0, x * image.width, 0, 1, y * image.height)


# Each takes the image and a strength in [-1, 1], of random sign; 1 is the
# paper's magnitude of 10. The ranges are AutoAugment's (Cubuk et al., 2018,
# table 6: rotation 30 degrees, shear 0.3, translation 150 of 331 pixels,
# enhancement 0.1 to 1.9, 4 to 8 bits, threshold 0 to 256), oriented so that a
# larger magnitude always changes the image more.
GROWING: Mapping[str, Callable[[Image.Image, float], Image.Image]] = {
    'identity': lambda image, s: image,
    'auto_contrast': lambda image, s: ImageOps.autocontrast(image),
    'equalize': lambda image, s: ImageOps.equalize(image),
    'rotate': lambda image, s: _rotate(image, 30 * s),
    'solarize': lambda image, s: ImageOps.solarize(
        image, round(256 * (1 - abs(s)))),
    'color': lambda image, s: ImageEnhance.Color(image).enhance(1 + 0.9 * s),
    'posterize': lambda image, s: ImageOps.posterize(
        image, 8 - round(4 * abs(s))),
    'contrast': lambda image, s: ImageEnhance.Contrast(image).enhance(
        1 + 0.9 * s),
    'brightness': lambda image, s: ImageEnhance.Brightness(image).enhance(
        1 + 0.9 * s),
    'sharpness': lambda image, s: ImageEnhance.Sharpness(image).enhance(
        1 + 0.9 * s),
    'shear_x': lambda image, s: _affine(image, 1, 0.3 * s, 0, 0, 1, 0),
    'shear_y': lambda image, s: _affine(image, 1, 0, 0, 0.3 * s, 1, 0),
    'translate_x': lambda image, s: _translate(image, 150 / 331 * s, 0),
    'translate_y': lambda image, s: _translate(image, 0, 150 / 331 * s),
}


def _cutout(
    image: Image.Image, strength: float, rng: np.random.Generator,
) -> Image.Image:
  """Fills a square around a random pixel, cut off at the edges, with grey."""
  half = int(40 / 224 * strength * min(image.size))
  x, y = int(rng.integers(image.width)), int(rng.integers(image.height))
  image = image.copy()
  image.paste((_GREY,) * len(image.getbands()),
              (x - half, y - half, x + half, y + half))
  return image


def _lookup(image: Image.Image, value: Callable[[int], int]) -> Image.Image:
  """Maps each of the values 0 to 255."""
  return image.point(
      [value(v) for v in range(256)] * len(image.getbands()))


# Each takes the image, a strength (magnitude / 10, so also above 1), the same
# with a random sign, and a generator. Operations and ranges of the
# `randaugment` of TensorFlow's EfficientNet for TPUs, which big_vision, AugReg
# (arXiv 2106.10270) and "Better plain ViT baselines" (2205.01580) use. It
# translates by 100 and cuts out half-sides of 40 pixels; here these are shares
# of 224. Its contrast blends with the wrong grey (the number of pixels / 256,
# not their mean): not followed here.
PUBLISHED: Mapping[str, Callable[
    [Image.Image, float, float, np.random.Generator], Image.Image]] = {
    'auto_contrast': lambda image, s, r, rng: ImageOps.autocontrast(image),
    'equalize': lambda image, s, r, rng: ImageOps.equalize(image),
    'invert': lambda image, s, r, rng: ImageChops.invert(image),
    'rotate': lambda image, s, r, rng: _rotate(image, 30 * r),
    'posterize': lambda image, s, r, rng: _lookup(
        image, lambda v: v >> (8 - int(4 * s)) << (8 - int(4 * s))),
    'solarize': lambda image, s, r, rng: ImageOps.solarize(
        image, int(256 * s)),
    'color': lambda image, s, r, rng: ImageEnhance.Color(image).enhance(
        1.8 * s + 0.1),
    'contrast': lambda image, s, r, rng: ImageEnhance.Contrast(image).enhance(
        1.8 * s + 0.1),
    'brightness': lambda image, s, r, rng: ImageEnhance.Brightness(
        image).enhance(1.8 * s + 0.1),
    'sharpness': lambda image, s, r, rng: ImageEnhance.Sharpness(
        image).enhance(1.8 * s + 0.1),
    'shear_x': lambda image, s, r, rng: _affine(image, 1, 0.3 * r, 0, 0, 1, 0),
    'shear_y': lambda image, s, r, rng: _affine(image, 1, 0, 0, 0.3 * r, 1, 0),
    'translate_x': lambda image, s, r, rng: _translate(image, 100 / 224 * r, 0),
    'translate_y': lambda image, s, r, rng: _translate(image, 0, 100 / 224 * r),
    'cutout': lambda image, s, r, rng: _cutout(image, s, rng),
    'solarize_add': lambda image, s, r, rng: _lookup(
        image, lambda v: min(255, v + int(110 * s)) if v < 128 else v),
}

# Published, 20 keeps all 8 bits of a value: there are no more.
_LARGEST = {'growing': 10, 'published': 20}


@dataclasses.dataclass(frozen=True)
class RandAugment:
  """Applies random operations of one shared strength.

  Attributes:
    num_layers: operations per image, drawn with repetition (N in the paper).
    magnitude: their strength (M in the paper), up to 10, or 20 as published.
    ranges: 'growing', 14 operations (`GROWING`), or 'published', 16.
  """
  num_layers: int = 2
  magnitude: float = 9
  ranges: Literal['growing', 'published'] = 'growing'

  def __post_init__(self):
    if self.num_layers < 0:
      raise ValueError(
          f'num_layers cannot be negative; got {self.num_layers}.')
    largest = _LARGEST[self.ranges]
    if not 0 <= self.magnitude <= largest:
      raise ValueError(
          f'magnitude must lie in [0, {largest}] where ranges is '
          f'{self.ranges!r}; got {self.magnitude}.')

  def __call__(
      self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    is_growing = self.ranges == 'growing'
    names = tuple(GROWING if is_growing else PUBLISHED)
    strength = self.magnitude / 10
    for index in rng.integers(len(names), size=self.num_layers):
      signed = strength if rng.random() < 0.5 else -strength
      if is_growing:
        image = GROWING[names[index]](image, signed)
      else:
        image = PUBLISHED[names[index]](image, strength, signed, rng)
    return image
