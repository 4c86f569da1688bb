"""Interface of image operations, which `registry.OPERATIONS` lists.

An operation is a frozen dataclass of its settings, which are its keys in
`data.train_ops` and `data.eval_ops`. It maps an image and a generator to an
image. A field `size` that is None becomes the resolution.
"""

from collections.abc import Callable
import dataclasses
from typing import Any, ClassVar, Literal

import numpy as np

from vit_jax import fields


class Operation:
  """Base of all operations."""
  # The mask of an image 'follows' the operation, also with interpolation
  # 'nearest', or 'stays' as it is; 'none' is an error.
  masks: ClassVar[Literal['follows', 'nearest', 'stays', 'none']] = 'none'
  # Whether images need not be 8-bit grey or RGB.
  any_channels: ClassVar[bool] = False
  is_random: ClassVar[bool] = True  # Whether it uses the generator.

  @property
  def least(self) -> tuple[int, int] | None:
    """Smallest height and width of the result; None if unknown or random."""
    return None

  @property
  def keeps_whole(self) -> bool:
    """Whether it resizes whole images to a fixed size."""
    return False

  def __call__(self, image: Any, rng: np.random.Generator) -> Any:
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
    if size is None:
      return self
    return dataclasses.replace(self, size=scale(size))  # type: ignore[type-var]


@dataclasses.dataclass(frozen=True)
class RandomOp(Operation):
  """An operation that changes only a share of the images."""
  probability: float = 0.5

  def __post_init__(self):
    fields.check_range(self, 'probability', most=1)

  def __call__(self, image: Any, rng: np.random.Generator) -> Any:
    return self.change(image, rng) if rng.random() < self.probability else image

  def change(self, image: Any, rng: np.random.Generator) -> Any:
    """Returns the changed image."""
    raise NotImplementedError
