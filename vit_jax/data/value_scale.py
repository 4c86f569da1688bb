"""Scale of pixel values: the one place that applies mean and std.

    pixels = (stored value - low) / (high - low)     in [0, 1]
    model input = (pixels - mean) / std

Training, evaluation and `predict` use this record, from the section `data` or
the `Preprocess` of weights.
"""

import dataclasses
import math
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Real
import numpy as np

from vit_jax.exceptions import UserError

DEFAULT_RANGE = (0, 255)  # Pixel values that become 0 and 1.

Pixels = TypeVar('Pixels', np.ndarray, jax.Array)  # Of the host or the device.


@dataclasses.dataclass(frozen=True)
class ValueScale:
  """Scale of pixel values. NumPy arrays stay on the host.

  Attributes:
    mean: subtracted from pixels in [0, 1]; one number or one per channel.
    std: divides the result; one number or one per channel.
    value_range: stored values that become 0 and 1; None is (0, 255).
  """
  mean: float | tuple[float, ...] = 0.5
  std: float | tuple[float, ...] = 0.5
  value_range: tuple[float, float] | None = None

  def to_unit(
      self, image: Real[Pixels, '... channels'],
  ) -> Float[Pixels, '... channels']:
    """Returns pixels in [0, 1], as float32, for stored values."""
    low, high = self.value_range or DEFAULT_RANGE
    return (image.astype(jnp.float32) - low) / (high - low)

  def normalize(
      self, pixels: Float[Pixels, '... channels'],
  ) -> Float[Pixels, '... channels']:
    """Returns model inputs for pixels in [0, 1]."""
    return (pixels - np.asarray(self.mean, np.float32)) / np.asarray(
        self.std, np.float32)


def check_range(value_range: tuple[float, float] | None, dtype: str) -> None:
  """Raises a UserError unless it is the range of pixels of a type."""
  if value_range is None and dtype != 'uint8':
    raise UserError(
        f'dtype {dtype} needs value_range, the pixel values that become 0 '
        'and 1, such as [0, 65535], or [0, 10000] for reflectances.')
  if value_range is not None and not (
      -math.inf < value_range[0] < value_range[1] < math.inf):
    raise UserError('value_range must be a lower and a higher pixel value; got '
                    f'{value_range}.')
