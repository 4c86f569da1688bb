"""Settings of LeJEPA (arXiv 2511.08544); see `joint_embedding`."""

import dataclasses
import math
from typing import Literal

from vit_jax import schema


@dataclasses.dataclass(frozen=True)
class ViewsConfig:
  """Views of an image; the defaults are those of LeJEPA's code.

  Attributes:
    num_global: number of global views, which have the size of the images.
    num_local: number of local views.
    local_size: side of local views in pixels.
    global_area: range of the area of global crops, as a fraction of the image.
    local_area: the same for local crops.
    aspect: range of width / height of a crop of a square image; the logarithm
      is uniform.
    flip: probability of mirroring.
    jitter: largest changes of brightness, contrast and saturation (factors 1 -
      x to 1 + x) and of hue (fraction of the colour circle).
    jitter_probability: probability of `jitter`.
    grayscale: probability of conversion to grey.
  """
  num_global: int = 2
  num_local: int = 6
  local_size: int = 96
  global_area: tuple[float, float] = (0.3, 1.0)
  local_area: tuple[float, float] = (0.05, 0.3)
  aspect: tuple[float, float] = (3 / 4, 4 / 3)
  flip: float = 0.5
  jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
  jitter_probability: float = 0.8
  grayscale: float = 0.2

  def __post_init__(self):
    if self.num_global < 1 or self.num_local < 0 or (
        self.num_global + self.num_local < 2):
      raise ValueError(
          'num_global must be at least 1, and at least 2 without local '
          f'views, but there are {self.num_global} global and '
          f'{self.num_local} local views.')
    if self.num_local and self.local_size < 1:
      raise ValueError(
          f'local_size must be positive, but is {self.local_size}.')
    for name, most in (
        ('global_area', 1), ('local_area', 1), ('aspect', math.inf)):
      low, high = getattr(self, name)
      if not 0 < low <= high <= most:
        raise ValueError(
            f'{name} must be a range, 0 < low <= high'
            + ' <= 1' * (most == 1) + f', but is {low}, {high}.')
    chances = self.flip, self.jitter_probability, self.grayscale
    if min(*chances, *self.jitter) < 0 or max(*chances, 2 * self.jitter[3]) > 1:
      raise ValueError(
          'flip, jitter_probability and grayscale must be from 0 to 1, '
          'and jitter at least 0 with a hue at most 0.5, but they are '
          f'{chances} and {self.jitter}.')

  @property
  def changes_colours(self) -> bool:
    """Whether the colours of views may differ from those of the image."""
    return bool(
        self.grayscale or (self.jitter_probability and any(self.jitter)))


@dataclasses.dataclass(frozen=True)
class LeJepaConfig:
  """Section `objective` of a config with `name: 'lejepa'`.

  Attributes:
    name: 'lejepa'.
    weight: weight of SIGReg, between 0 and 1; the prediction loss has weight
      1 - `weight`.
    directions: number of random directions that SIGReg draws in each step.
    hidden: width of the two hidden layers of the projector.
    embedding: length of an embedding.
    views: random views of an image.
  """
  name: Literal['lejepa'] = 'lejepa'
  weight: float = 0.05
  directions: int = 1024
  hidden: int = 2048
  embedding: int = 64
  views: ViewsConfig = ViewsConfig()

  def __post_init__(self):
    if not 0 < self.weight < 1:
      raise ValueError(
          f'weight must be between 0 and 1, but is {self.weight}.')
    schema.check_range(self, 'directions', 'hidden', 'embedding', low=1)
