"""Config of a convolutional network, alone or as the stem of a hybrid."""

import dataclasses

GROUPS = 32  # Groups of a group norm (arXiv 1912.11370, section 3.2).


@dataclasses.dataclass(frozen=True)
class StemConfig:
  """Convolutional network up to its last feature map.

  The defaults are from the paper's hybrids. A kernel w is standardised to
  (w - mean) / (sqrt(variance + variance_epsilon) + std_epsilon) over all axes
  except the last.

  Attributes:
    depths: residual units of each stage. () is the root alone, with stride
      4; each stage after the first doubles the stride.
    width: channels of the root and of the bottleneck of the first stage.
    preactivation: norm and ReLU before each convolution (ResNet v2, as BiT)
      instead of after. Padding differs as well: symmetric for BiT, TensorFlow's
      SAME for the hybrids.
    group_norm_epsilon: added to the variance in group norms.
    std_epsilon: added to the standard deviation of a kernel.
    variance_epsilon: added to the variance of a kernel.
  """
  depths: tuple[int, ...]
  width: int = 64
  preactivation: bool = False
  group_norm_epsilon: float = 1e-6
  std_epsilon: float = 1e-5
  variance_epsilon: float = 0.0

  def __post_init__(self):
    if min(self.depths, default=1) < 1:
      raise ValueError(
          f'Each stage needs at least one unit, but depths is {self.depths}.')
    if self.width < 1 or self.width % GROUPS:
      raise ValueError(
          f'width must be a multiple of the {GROUPS} groups of a group norm, '
          f'but is {self.width}.')

  @property
  def stride(self) -> int:
    """Stride of the feature map in pixels."""
    return 4 * 2 ** max(len(self.depths) - 1, 0)

  def feature_map(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    """Returns the shape of the last feature map of an image."""
    height, width = image_shape
    return -(-height // self.stride), -(-width // self.stride)
