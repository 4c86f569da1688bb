"""ResNets with group norm and weight standardisation ("ResNet (BiT)").

Baselines of the paper (arXiv 2010.11929, section 4.1; 1912.11370) and backbones
of its hybrids. The first unit of a stage changes the shape; the remaining units
are stacked and scanned like the layers of the encoder.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax import fields
from vit_jax.models import layers
from vit_jax.models import model_config
from vit_jax.models import vit

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


class StdConv(nn.Module):
  """Convolution with a standardised kernel (arXiv 1903.10520) and no bias."""
  config: StemConfig
  channels: int
  size: int
  stride: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(
      self, features: Float[Array, 'batch height width in'],
  ) -> Float[Array, 'batch new_height new_width {self.channels}']:
    c = self.config
    kernel = self.param(
        'kernel',
        nn.with_logical_partitioning(
            nn.initializers.lecun_normal(), (None, None, None, 'width')),
        (self.size, self.size, features.shape[-1], self.channels))
    centred = kernel - kernel.mean(axis=(0, 1, 2))
    variance = jnp.square(centred).mean(axis=(0, 1, 2))
    kernel = centred / (jnp.sqrt(variance + c.variance_epsilon) + c.std_epsilon)
    features, kernel = features.astype(self.dtype), kernel.astype(self.dtype)
    if self.size == 1:  # On CPUs, a matrix product has faster gradients.
      return features[:, ::self.stride, ::self.stride] @ kernel[0, 0]
    return jax.lax.conv_general_dilated(
        features, kernel, (self.stride, self.stride), padding(c, self.size),
        dimension_numbers=('NHWC', 'HWIO', 'NHWC'))


def padding(config: StemConfig, size: int) -> Any:
  """Returns the padding of a window: see `StemConfig.preactivation`."""
  if not config.preactivation:
    return 'SAME'
  before = (size - 1) // 2
  return [(before, size - 1 - before)] * 2


class Unit(nn.Module):
  """Bottleneck unit: 1x1, 3x3 and 1x1 convolutions, and a shortcut.

  It has the signature of a scan body without inputs.
  """
  config: StemConfig
  width: int
  stride: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(
      self, features: Float[Array, 'batch height width in'], _: None,
  ) -> tuple[Float[Array, 'batch new_height new_width out'], None]:
    c, width = self.config, self.width

    def conv(
        name: str, x: jax.Array, channels: int, size: int = 1, stride: int = 1,
    ) -> jax.Array:
      return StdConv(c, channels, size, stride, self.dtype, name=name)(x)

    def norm(name: str, x: jax.Array, **options: Any) -> jax.Array:
      return group_norm(c, self.dtype, name, **options)(x)

    inputs = nn.relu(norm('norm1', features)) if c.preactivation else features
    shortcut = features
    if self.stride > 1 or features.shape[-1] != 4 * width:
      shortcut = conv('conv_proj', inputs, 4 * width, stride=self.stride)
      if not c.preactivation:
        shortcut = norm('norm_proj', shortcut)
    after = ('norm2', 'norm3') if c.preactivation else ('norm1', 'norm2')
    x = nn.relu(norm(after[0], conv('conv1', inputs, width)))
    x = nn.relu(norm(after[1], conv('conv2', x, width, 3, self.stride)))
    x = conv('conv3', x, 4 * width)
    if c.preactivation:
      return shortcut + x, None
    # Zero scale: a unit starts as its shortcut (arXiv 1706.02677).
    x = norm('norm3', x, scale=nn.initializers.zeros)
    return nn.relu(shortcut + x), None


def group_norm(
    config: StemConfig, dtype: jnp.dtype, name: str, *,
    scale: Any = nn.initializers.ones,
) -> nn.GroupNorm:
  """Group norm with float32 statistics."""
  return nn.GroupNorm(
      num_groups=GROUPS, epsilon=config.group_norm_epsilon,
      dtype=dtype, scale_init=nn.with_logical_partitioning(scale, ('norm',)),
      bias_init=nn.with_logical_partitioning(
          nn.initializers.zeros, ('norm',)), name=name)


class Stage(nn.Module):
  """Units of one width; the first may halve the feature map size."""
  config: Any  # With `backbone`, `compute_dtype`, `remat` and `unroll`.
  depth: int
  width: int
  stride: int

  @nn.compact
  def __call__(
      self, features: Float[Array, 'batch height width in'],
  ) -> Float[Array, 'batch new_height new_width out']:
    c = self.config
    first = self._unit(in_scan=False)
    features, _ = first(c.backbone, self.width, self.stride, c.compute_dtype,
                        name='unit1')(features, None)
    if self.depth > 1:
      units = nn.scan(
          self._unit(in_scan=True), variable_axes={'params': 0},
          split_rngs={'params': True}, length=self.depth - 1, unroll=c.unroll,
          metadata_params={nn.PARTITION_NAME: 'layers'})
      features, _ = units(c.backbone, self.width, 1, c.compute_dtype,
                          name='units')(features, None)
    return features

  def _unit(self, *, in_scan: bool) -> Any:
    remat = self.config.remat
    if remat == 'none':
      return Unit
    # Outside of a loop, CSE would undo the rematerialisation.
    return nn.remat(Unit, prevent_cse=not in_scan, policy=(
        jax.checkpoint_policies.nothing_saveable if remat == 'full' else
        _is_product))


def _is_product(primitive: Any, *args: Any, **params: Any) -> bool:
  """Whether an intermediate is saved for the backward pass."""
  del args, params
  return primitive.name in ('conv_general_dilated', 'dot_general')


class Stem(nn.Module):
  """Convolutional network without head; returns its last feature map."""
  config: Any  # With `backbone`, `compute_dtype`, `remat` and `unroll`.

  @nn.compact
  def __call__(
      self, images: Float[Array, 'batch height width channels'],
  ) -> Float[Array, 'batch rows columns features']:
    c, dtype = self.config.backbone, self.config.compute_dtype
    assert c is not None
    x = StdConv(c, c.width, 7, 2, dtype, name='root')(images)
    if not c.preactivation:
      x = nn.relu(group_norm(c, dtype, 'root_norm')(x))
    x = _pool(x, padding(c, 3))
    for i, depth in enumerate(c.depths):
      x = Stage(self.config, depth, c.width * 2**i, 1 if i == 0 else 2,
                name=f'block{i + 1}')(x)
    return x


def _pool(features: jax.Array, window: Any) -> jax.Array:
  if window != 'SAME':
    # BiT pads with zeros; without a ReLU before, features may be negative.
    features = jnp.pad(features, [(0, 0), *window, (0, 0)])
    window = 'VALID'
  return nn.max_pool(
      features, window_shape=(3, 3), strides=(2, 2), padding=window)


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
  name: Literal['resnet'] = fields.switch('resnet')  # type: ignore[assignment]
  backbone: StemConfig | None = fields.switch(None)
  remat: fields.Free[layers.Remat] = 'none'  # type: ignore[misc]
  unroll: fields.Free[int] = 1

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
    return ResNet(self)


class ResNet(nn.Module):
  """ResNet classifier with named outputs."""
  config: ResNetConfig

  @nn.compact
  def __call__(
      self,
      images: Float[Array, 'batch height width channels'],
      *,
      train: bool = False,
  ) -> dict[str, Any]:
    """Applies the model.

    Args:
      images: preprocessed images.
      train: unused: there is neither dropout nor batch norm.

    Returns:
      `tokens` [batch, tokens, width]: the last feature map in row-major order;
      `pooled` and `representation` [batch, width]: its mean; `logits` [batch,
      classes].
    """
    del train
    c = self.config
    assert c.backbone is not None
    features = Stem(c, name='backbone')(images)
    if c.backbone.preactivation:
      features = nn.relu(group_norm(
          c.backbone, c.compute_dtype, 'final_norm')(features))
    tokens = features.reshape(features.shape[0], -1, features.shape[-1])
    pooled = tokens.mean(axis=1)
    logits = layers.Head(c.num_classes, c.head_bias, name='head')(pooled)
    return {'tokens': tokens, 'pooled': pooled, 'representation': pooled,
            'logits': logits}


@dataclasses.dataclass(frozen=True)
class HybridConfig(vit.ViTConfig):
  """Section `model` of a config with `name: 'hybrid'`.

  Attributes:
    backbone: convolutional network whose feature map replaces the image;
      `patch` is in positions of that map.
  """
  name: Literal['hybrid'] = fields.switch('hybrid')  # type: ignore[assignment]
  backbone: StemConfig | None = fields.switch(None)

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
    return Hybrid(self, grid)


class Hybrid(vit.ViT):
  """ViT on the feature map of a ResNet (section 3.1, "Hybrid architecture")."""
  config: HybridConfig

  def patches(self, images: jax.Array) -> jax.Array:
    return super().patches(Stem(self.config, name='backbone')(images))
