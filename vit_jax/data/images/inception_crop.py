"""Random crops of random area and aspect ratio."""

import dataclasses
import math
from typing import ClassVar, Literal

import numpy as np

from vit_jax.data.images import ops as ops_lib
from vit_jax.data.images import resize as resize_lib


@dataclasses.dataclass(frozen=True)
class InceptionCrop(ops_lib.Operation):
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

  def __call__(
      self, image: ops_lib.Picture, rng: np.random.Generator,
  ) -> ops_lib.Picture:
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
