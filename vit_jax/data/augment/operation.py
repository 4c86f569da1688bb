"""Interface of image operations, which `registry.OPERATIONS` lists.

An operation is a frozen dataclass of its settings, which are its keys in
`data.train_ops` and `data.eval_ops`. It maps an image and a generator to an
image. A field `size` that is None becomes the resolution.
"""

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

  def __call__(self, image: Any, rng: np.random.Generator) -> Any:
    """Returns the changed image: a Pillow image or a `MultichannelImage`."""
    raise NotImplementedError


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
