"""The settings of a ResNet: alone, and below a Vision Transformer."""

import dataclasses
from typing import Literal

import jax.numpy as jnp

from vit_jax.models import architecture

_switch, _ANY = architecture.switch, architecture.ANY

GROUPS = 32  # Of every group norm (arXiv 1912.11370, section 3.2).


@dataclasses.dataclass(frozen=True)
class BackboneConfig:
  """A convolutional network up to its last feature map.

  The defaults are those of the paper's hybrids. A kernel w is standardised to
  (w - mean) / (sqrt(variance + variance_epsilon) + std_epsilon), over all of
  its axes but the last.

  Attributes:
    depths: residual units in each stage; () is the root alone, which makes an
      image four times smaller. Each stage after the first halves it again.
    width: channels of the root, and of the first stage's bottleneck.
    preactivation: norm and ReLU before each convolution (ResNet v2, as BiT)
      rather than after. The two differ in padding as well: BiT pads a window
      by the same on either side, the hybrids as TensorFlow's SAME.
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
          f'A stage has at least one unit, but depths is {self.depths}.')
    if self.width < 1 or self.width % GROUPS:
      raise ValueError(
          f'width must be a multiple of the {GROUPS} groups of a group norm, '
          f'but is {self.width}.')

  @property
  def stride(self) -> int:
    """Pixels between two places of the feature map."""
    return 4 * 2 ** max(len(self.depths) - 1, 0)


@dataclasses.dataclass(frozen=True)
class ResNetConfig:
  """Section `model` of a config, for `name: 'resnet'` ("ResNet (BiT)").

  Attributes:
    name: always 'resnet'.
    variant: 'R50x1' and the like; fills in what `backbone` leaves open.
    backbone: the convolutional network; the head is all there is beside it.
    num_classes: outputs of the head; 0 takes the data set's.
    head_bias: initial bias of the head, whose kernel starts at zero.
    dtype: of activations and convolutions. Parameters, statistics of norms,
      head and loss are float32 always.
    remat: what the backward pass computes again to save memory: 'none', 'dots'
      (all but convolutions), which 'attention' is as well where there is none,
      or 'full' (all but each unit's input).
    unroll: units compiled side by side in a scan step. On a CPU, where the
      gradient of a convolution in a loop is slow, 99 unrolls all of a stage.
  """
  name: Literal['resnet'] = _switch('resnet', exported=_ANY)
  variant: str = ''
  backbone: BackboneConfig | None = _switch(
      None, exported={'npz': _ANY, 'timm': _ANY})
  num_classes: int = 0
  head_bias: float = 0.0
  dtype: Literal['float32', 'bfloat16'] = 'float32'
  remat: Literal['none', 'attention', 'dots', 'full'] = 'none'
  unroll: int = 1

  def __post_init__(self):
    if self.unroll < 1:
      raise ValueError(f'unroll must be at least 1, but is {self.unroll}.')
    if self.num_classes < 0:
      raise ValueError(
          f'num_classes cannot be negative, but is {self.num_classes}.')

  @property
  def compute_dtype(self) -> jnp.dtype:
    """`dtype`, as JAX names it."""
    return jnp.dtype(self.dtype)


def complete(config: ResNetConfig) -> ResNetConfig:
  """Returns the config if nothing is missing.

  Raises:
    ValueError: if there is neither a variant nor a backbone.
  """
  if config.backbone is None or not config.backbone.depths:
    raise ValueError(
        'A ResNet needs its stages. Set model.variant to e.g. "R50x1", or '
        'model.backbone.depths to e.g. [3, 4, 6, 3].')
  return config
