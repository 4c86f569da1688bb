"""Configs of ResNets and of the convolutional backbones of hybrids."""

import dataclasses
from typing import ClassVar, Literal

import jax.numpy as jnp

from vit_jax import schema
from vit_jax.models import architecture

_switch, _ANY = architecture.switch, architecture.ANY

GROUPS = 32  # Groups of a group norm (arXiv 1912.11370, section 3.2).


@dataclasses.dataclass(frozen=True)
class BackboneConfig:
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
class ResNetConfig:
  """Section `model` of a config with `name: 'resnet'` ("ResNet (BiT)").

  Attributes:
    name: 'resnet'.
    variant: name such as 'R50x1'; sets missing fields of `backbone`.
    backbone: the convolutional network.
    num_classes: outputs of the head; 0 uses the classes of the dataset.
    head_bias: initial bias of the head, whose kernel starts at zero.
    dtype: type of activations and convolutions. Parameters, norm statistics,
      head and loss are always float32. 'auto' is bfloat16 on TPUs and GPUs, and
      float32 on CPUs; the run keeps the dtype it starts with.
    remat: intermediates that the backward pass recomputes: 'none', 'dots' or
      'attention' (all except convolutions), or 'full' (all except the inputs of
      units).
    unroll: units per scan iteration. Gradients of convolutions in loops are
      slow on CPUs; 99 unrolls whole stages.
  """
  name: Literal['resnet'] = _switch('resnet', exported=_ANY)
  variant: str = ''
  backbone: BackboneConfig | None = _switch(
      None, exported={'npz': _ANY, 'timm': _ANY})
  num_classes: int = 0
  head_bias: float = 0.0
  dtype: Literal['auto', 'float32', 'bfloat16'] = 'float32'
  remat: Literal['none', 'attention', 'dots', 'full'] = 'none'
  unroll: int = 1

  # Answers that are settings of a ViT: it has neither layers to capture nor
  # tokens that are not patches.
  num_layers: ClassVar[int] = 0
  num_prefix: ClassVar[int] = 0
  has_cls: ClassVar[bool] = False
  distill_token: ClassVar[bool] = False
  axial: ClassVar[bool] = False
  attention: ClassVar[str] = 'plain'

  def __post_init__(self):
    schema.check_range(self, 'unroll', low=1)
    schema.check_range(self, 'num_classes')

  @property
  def compute_dtype(self) -> jnp.dtype:
    """`dtype` as a JAX dtype."""
    return jnp.dtype(self.dtype)

  def check_complete(self) -> None:
    """Raises a ValueError if there are no stages."""
    if self.backbone is None or not self.backbone.depths:
      raise ValueError(
          'A ResNet needs its stages. Set model.variant to e.g. "R50x1", or '
          'model.backbone.depths to e.g. [3, 4, 6, 3].')

  def grid(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    """Returns the shape of the last feature map of an image."""
    assert self.backbone is not None
    return self.backbone.feature_map(image_shape)

  @property
  def output_width(self) -> int:
    """Width of the representation."""
    assert self.backbone is not None
    return 4 * self.backbone.width * 2 ** (len(self.backbone.depths) - 1)

  def describe(self) -> str:
    """Returns the variant, or the kind of the model."""
    return self.variant or self.name

  def without_fused_kernels(self, platform: str = '') -> 'ResNetConfig':
    """Returns the config itself: it uses no fused kernels."""
    return self
