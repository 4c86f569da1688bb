"""Models: linen modules built from section `model` of a config.

A module maps preprocessed images to named outputs, and names the axes of its
parameters. `parallel.sharding` maps these names to mesh axes. For a model of
your own, see `OwnModelConfig`.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax

from vit_jax import registry
from vit_jax import schema
from vit_jax.models import architecture
from vit_jax.models import embed
from vit_jax.models import resnet_config
from vit_jax.models import variants
from vit_jax.models import vit_config

POSITION_PARAMS = embed.POSITION_PARAMS
patch_positions = embed.patch_positions
position_embeddings = embed.position_embeddings
resize = embed.resize



@dataclasses.dataclass(frozen=True)
class OwnModelConfig:
  """Base of the section `model` with the name of your own model.

  A record adds its settings as fields, and a method `build`. The module is
  called as module(images, train=False) and returns at least `logits` [batch,
  classes] and `representation` [batch, width], the input of the head. A head
  called `head`, with the layer `dense`, is replaced by fine-tuning.

  Attributes:
    name: 'my_package.my_module:MyConfig'.
    num_classes: outputs of the head; 0 uses the classes of the dataset.
    dtype: type of activations. 'auto' is bfloat16 on TPUs and GPUs, and float32
      on CPUs; the run keeps the dtype it starts with.
  """
  name: str
  num_classes: int = 0
  dtype: Literal['auto', 'float32', 'bfloat16'] = 'float32'

  # A ViT has layers to capture, tokens that are not patches, and kernels.
  variant: ClassVar[str] = ''
  backbone: ClassVar[None] = None
  num_layers: ClassVar[int] = 0
  num_prefix: ClassVar[int] = 0
  has_cls: ClassVar[bool] = False
  distill_token: ClassVar[bool] = False
  axial: ClassVar[bool] = False
  attention: ClassVar[str] = 'plain'
  remat: ClassVar[str] = 'none'

  def build(self) -> nn.Module:
    """Returns the module, for `num_classes`."""
    raise NotImplementedError

  def grid(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    """Returns the rows and columns of tokens; raises for other image sizes."""
    del image_shape
    return 1, 1

  @property
  def compute_dtype(self) -> jax.numpy.dtype:
    """`dtype` as a JAX dtype."""
    return jax.numpy.dtype(self.dtype)

  def check_complete(self) -> None:
    """Raises a ValueError if a setting is missing."""

  def describe(self) -> str:
    """Returns the name of the model."""
    return self.name

  def without_fused_kernels(self, platform: str = '') -> 'OwnModelConfig':
    """Returns the config itself: it uses no fused kernels."""
    del platform
    return self


ModelConfig = (
    vit_config.ViTConfig | resnet_config.ResNetConfig | OwnModelConfig)

# Layers of a head whose outputs are classes; a decoder has others, too.
CLASSIFIERS = ('dense', 'distill')
# Parameters of self-supervised pre-training that models are loaded without.
PRETRAINING_ONLY = ('masked_patch', 'projector')


def config_type(name: Any) -> type[ModelConfig]:
  """Returns the config record of a kind of model."""
  return registry.find(
      name, registry.MODELS, what='model.name', kind=OwnModelConfig)


def parse(section: Mapping[str, Any]) -> ModelConfig:
  """Returns the record of section `model` with all dimensions.

  Raises:
    ValueError: for an unknown name, key or variant, or a missing dimension.
  """
  variant = section.get('variant')
  implied: dict[str, Any] = (
      variants.section(str(variant)) if variant else {'name': 'vit'})
  merged = {**implied, **section}
  if variant and merged['name'] != implied['name']:
    config_type(merged['name'])
    raise ValueError(
        f'model.variant {variant!r} is a {implied["name"]}, but model.name is '
        f'{merged["name"]!r}. Leave out one of them.')
  backbone, given = implied.get('backbone'), section.get('backbone') or {}
  if backbone and isinstance(given, Mapping):
    merged['backbone'] = {**backbone, **given}
  config = schema.parse(config_type(merged['name']), merged, where='model')
  # 0 stands for the dimension of the variant.
  config = dataclasses.replace(config, **{
      name: implied[name] for name in vit_config.DIMENSIONS
      if name in implied and not getattr(config, name)})
  config.check_complete()
  return config


def inherit(
    section: Mapping[str, Any], source: Mapping[str, Any],
) -> dict[str, Any]:
  """Completes a section with the architecture of a checkpoint.

  Keys that define what the parameters compute are inherited: dimensions,
  pooling, GELU, epsilon, norms. Training settings (dropout, dtype, remat, ...)
  are not, nor is the decoder, which is a head. `source` is section `model` of
  the checkpoint.
  """
  record = config_type(source['name'])
  if issubclass(record, OwnModelConfig):
    if section.get('name', source['name']) != source['name']:
      return dict(section)
    names = tuple(name for name in source if name not in (
        'num_classes', 'dtype'))
  else:
    names = tuple(name for name in architecture.switches(record)
                  if name != 'decoder')
  variant = section.get('variant')
  if variant:
    chosen = variants.section(str(variant))
    if chosen['name'] != source['name']:
      return dict(section)
    names = tuple(n for n in names if n not in chosen)
  return {**{name: source[name] for name in names if name in source},
          **section}


def with_dtype(
    config: ModelConfig, devices: Sequence[jax.Device],
) -> ModelConfig:
  """Returns the config with the dtype for `devices` in place of 'auto'."""
  if config.dtype != 'auto':
    return config
  # The fused kernel needs bfloat16, and CPUs replace it.
  is_slow = config.attention == 'plain' and any(
      device.platform == 'cpu' for device in devices)
  return dataclasses.replace(
      config, dtype='float32' if is_slow else 'bfloat16')


def with_remat(config: ModelConfig, remat: Any) -> ModelConfig:
  """Returns the config with another `remat`, which own models do not have."""
  return config if isinstance(config, OwnModelConfig) else (
      dataclasses.replace(config, remat=remat))


def for_devices(
    config: ModelConfig, devices: Sequence[jax.Device],
) -> ModelConfig:
  """Returns the config with kernels that `devices` support.

  The model may be traced on other devices.
  """
  platforms = {device.platform for device in devices}
  return config.without_fused_kernels(
      platforms.pop() if len(platforms) == 1 else '')


def build(
    config: ModelConfig, *, num_classes: int, patch: int | None = None,
) -> nn.Module:
  """Returns the module; `num_classes` applies if the config has 0.

  `patch` is another patch size than that of the parameters.
  """
  if not config.num_classes:
    config = dataclasses.replace(config, num_classes=num_classes)
  # A config can be read and completed without the modules.
  if isinstance(config, OwnModelConfig):
    return config.build()
  if isinstance(config, resnet_config.ResNetConfig):
    from vit_jax.models import resnet
    return resnet.ResNet(config)
  from vit_jax.models import vit
  return vit.ViT(config, patch and (patch, patch))


def init(
    model: nn.Module, key: jax.Array, images: jax.ShapeDtypeStruct | jax.Array,
) -> Any:
  """Returns new parameters, boxed with the names of their axes.

  Only the shape of `images`, [batch, height, width, channels], is used.
  """
  zeros = jax.numpy.zeros((1, *images.shape[1:]), jax.numpy.float32)
  return model.init(key, zeros)['params']
