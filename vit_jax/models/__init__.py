"""Models: a section of the config becomes a linen module.

A module takes images in its value range and returns named outputs. It names
the axes of its parameters; which mesh axis each is split over is not its
concern.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import flax.linen as nn
import jax

from vit_jax import schema
from vit_jax.models import architecture
from vit_jax.models import embed
from vit_jax.models import masked_patch
from vit_jax.models import per_example_random
from vit_jax.models import resnet
from vit_jax.models import resnet_config
from vit_jax.models import variants
from vit_jax.models import vit
from vit_jax.models import vit_config

for_images = per_example_random.for_images
MaskedPatch = masked_patch.MaskedPatch
POSITIONS = embed.TABLES
patch_positions = embed.patch_positions
resize = embed.resize
without_prediction = masked_patch.without_prediction

ModelConfig = vit_config.ViTConfig | resnet_config.ResNetConfig

_FAMILIES = {'vit': vit_config.ViTConfig,
             'resnet': resnet_config.ResNetConfig}
# What a variant says.
_OF_VARIANT = (*vit_config.DIMENSIONS, 'backbone')


def parse(section: Mapping[str, Any]) -> ModelConfig:
  """Returns the typed record of the section `model`, every dimension filled.

  Raises:
    ValueError: for an unknown name, key or variant, or a missing dimension.
  """
  variant = str(section.get('variant') or '')
  section = {'name': variants.family(variant), **variants.settings(variant),
             **section}
  backbone, given = variants.backbone(variant), section.get('backbone') or {}
  if backbone and isinstance(given, Mapping):
    section = {**section, 'backbone': {**backbone, **given}}
  config = schema.parse_choice(_FAMILIES, section, where='model')
  if isinstance(config, resnet_config.ResNetConfig):
    return resnet_config.complete(config)
  return vit_config.complete(config)


def without_dimensions(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the section `model` without what a variant says."""
  return {key: value for key, value in section.items()
          if key not in vit_config.DIMENSIONS}


def inherit(
    section: Mapping[str, Any], source: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns a section that takes from `source` what it leaves open.

  Parameters mean what they meant where they were trained: with the same
  dimensions, pooling, GELU, epsilon and norms. What concerns training alone
  (dropout, dtype, remat, ...) is not taken over.

  Args:
    section: the section `model` of a run that starts from a checkpoint.
    source: that section of the checkpoint's own config.
  """
  names = architecture.switches(_FAMILIES[source['name']])
  variant = section.get('variant')
  if variant:
    if variants.family(variant) != source['name']:
      return dict(section)
    said = (*_OF_VARIANT, *variants.settings(str(variant)))
    names = tuple(n for n in names if n not in said)
  return {**{name: source[name] for name in names if name in source},
          **section}


def for_devices(
    config: ModelConfig, devices: Sequence[jax.Device],
) -> ModelConfig:
  """Returns the config of the kernels that exist on `devices`.

  Args:
    config: of a model.
    devices: where the model will run, which need not be where it is traced.
  """
  if any(device.platform != 'gpu' for device in devices):
    return without_fused_kernels(config)
  return config


def without_fused_kernels(config: ModelConfig) -> ModelConfig:
  """Returns the config of the same function in plain JAX operations.

  It can be traced on any platform, and its jaxpr contains every operation.
  """
  if isinstance(config, vit_config.ViTConfig):
    return dataclasses.replace(config, attention='plain')
  return config


def build(config: ModelConfig, *, num_classes: int) -> nn.Module:
  """Returns the module; a config that leaves the classes open takes these."""
  if not config.num_classes:
    config = dataclasses.replace(config, num_classes=num_classes)
  if isinstance(config, resnet_config.ResNetConfig):
    return resnet.ResNet(config)
  return vit.ViT(config)


def init(
    model: nn.Module, key: jax.Array, images: jax.ShapeDtypeStruct | jax.Array,
) -> Any:
  """Returns new parameters; each leaf is boxed with the names of its axes.

  Args:
    model: from `build`.
    key: random key.
    images: [batch, height, width, channels]; only the shape is used.
  """
  zeros = jax.numpy.zeros((1, *images.shape[1:]), jax.numpy.float32)
  return model.init(key, zeros)['params']


def grid(config: ModelConfig, image_shape: tuple[int, int]) -> tuple[int, int]:
  """Returns rows and columns of the patches of an image (height, width).

  Those of a ResNet are the places of its last feature map.
  """
  if config.backbone is not None:
    image_shape = embed.strided(image_shape, config.backbone.stride)
  if isinstance(config, resnet_config.ResNetConfig):
    return image_shape
  return embed.grid_shape(image_shape, config.patch_shape)
