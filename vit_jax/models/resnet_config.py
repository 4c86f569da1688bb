"""Configs of ResNets, and of hybrids with their convolutional stems."""

import dataclasses
from typing import ClassVar, Literal

import flax.linen as nn

from vit_jax import fields
from vit_jax.models import layers
from vit_jax.models import model_config
from vit_jax.models import vit

_switch = fields.switch

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


@dataclasses.dataclass(frozen=True)
class HybridConfig(vit.ViTConfig):
  """Section `model` of a config with `name: 'hybrid'`.

  Attributes:
    backbone: convolutional network whose feature map replaces the image;
      `patch` is in positions of that map.
  """
  name: Literal['hybrid'] = _switch('hybrid')  # type: ignore[assignment]
  backbone: StemConfig | None = _switch(None)

  has_patches: ClassVar[bool] = False  # Receptive fields overlap.
  dimensions: ClassVar[tuple[str, ...]] = (
      *vit.ViTConfig.dimensions, 'backbone')

  def grid(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    assert self.backbone is not None
    return super().grid(self.backbone.feature_map(image_shape))

  def image_size(self, grid: tuple[int, int]) -> tuple[int, int]:
    assert self.backbone is not None
    height, width = super().image_size(grid)
    return height * self.backbone.stride, width * self.backbone.stride

  def build(self, *, grid: tuple[int, int] | None = None) -> nn.Module:
    from vit_jax.models import resnet
    return resnet.Hybrid(self, grid)


@dataclasses.dataclass(frozen=True)
class ResNetConfig(model_config.ModelConfig):
  """Section `model` of a config with `name: 'resnet'` ("ResNet (BiT)").

  Attributes:
    backbone: the convolutional network; missing fields are set by `variant`.
    remat: intermediates that the backward pass recomputes: 'none', 'dots' or
      'attention' (all except convolutions), or 'full' (all except the inputs of
      units).
    unroll: units per scan iteration. Gradients of convolutions in loops are
      slow on CPUs; 99 unrolls whole stages.
  """
  name: Literal['resnet'] = _switch('resnet')  # type: ignore[assignment]
  backbone: StemConfig | None = _switch(None)
  remat: layers.Remat = 'none'  # type: ignore[misc]
  unroll: int = 1

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'unroll', low=1)

  def check_complete(self) -> None:
    if self.backbone is None or not self.backbone.depths:
      raise ValueError(
          'A ResNet needs its stages. Set model.variant to e.g. "R50x1", or '
          'model.backbone.depths to e.g. [3, 4, 6, 3].')

  def grid(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    assert self.backbone is not None
    return self.backbone.feature_map(image_shape)

  @property
  def output_width(self) -> int:
    assert self.backbone is not None
    return 4 * self.backbone.width * 2 ** (len(self.backbone.depths) - 1)

  def build(self, *, grid: tuple[int, int] | None = None) -> nn.Module:
    from vit_jax.models import resnet
    return resnet.ResNet(self)
