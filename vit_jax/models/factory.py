"""Models: linen modules built from section `model` of a config.

A module maps preprocessed images to named outputs, and names the axes of its
parameters. `parallel.sharding` maps these names to mesh axes. For a model of
your own, extend `ModelConfig`.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import flax.linen as nn
import jax

from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax.exceptions import UserError
from vit_jax.models import variants
from vit_jax.models import vit
from vit_jax.models.model_config import ModelConfig

# Layers of a head whose outputs are classes; a decoder has others, too.
CLASSIFIERS = ('head/dense/', 'head/distill/')
# Parameters of self-supervised pre-training that models are loaded without.
PRETRAINING_ONLY = ('masked_patch', 'projector')


def parse(section: Mapping[str, Any]) -> ModelConfig:
  """Returns the record of section `model` with all dimensions.

  Raises:
    UserError: for an unknown name, key or variant, or a missing dimension.
  """
  variant = section.get('variant')
  implied: dict[str, Any] = (
      variants.section(str(variant)) if variant else {'name': 'vit'})
  merged = {**implied, **section}
  if variant and _is_vit(merged['name']) != _is_vit(implied['name']):
    raise UserError(
        f'model.variant {variant!r} is a {implied["name"]}, but model.name is '
        f'{merged["name"]!r}. Leave out one of them.')
  stem, given = implied.get('backbone'), section.get('backbone') or {}
  if stem and isinstance(given, Mapping):
    merged['backbone'] = {**stem, **given}
  kind = record(merged['name'])
  try:
    config = schema.parse(kind, merged, where='model')
  except UserError:
    if (current := _current(merged)) == merged:
      raise
    return parse(current)
  config.check_complete()
  return config


def record(name: Any) -> type[ModelConfig]:
  """Returns the record of a model, by `model.name`."""
  return registry.find(
      name, registry.MODELS, what='model.name', kind=ModelConfig)


def _current(section: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns a section of an earlier version as one of this version."""
  earlier = registry.optional(registry.EARLIER)
  return earlier.translate(section) if earlier else section


def _is_vit(name: str) -> bool:
  return issubclass(record(name), vit.ViTConfig)


def inherit(
    section: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
  """Completes a section with the architecture of a checkpoint.

  Keys that define what the parameters compute are inherited: dimensions,
  pooling, GELU, epsilon, norms. Training settings (dropout, dtype, remat, ...)
  are not, nor is the decoder, which is a head. `source` is section `model` of
  the checkpoint.
  """
  source = _current(source)
  kind = record(source['name'])
  if registry.is_target(source['name']):  # Of the user: every setting.
    if section.get('name', source['name']) != source['name']:
      return dict(section)
    names = {*source} - {
        field.name for field in dataclasses.fields(ModelConfig)} | {'name'}
  else:
    names = {*fields.switches(kind)} - {'decoder'}
  variant = section.get('variant')
  if variant:
    chosen = variants.section(str(variant))
    if _is_vit(chosen['name']) != _is_vit(source['name']):
      return dict(section)
    names -= {*chosen} - {'name'}
    # A variant of a plain ViT names sizes only: it may be one of another kind.
    if chosen['name'] != 'vit' or source['name'] == 'hybrid':
      names &= {*fields.switches(record(chosen['name']))} - {'name'}
  return {**{name: source[name] for name in source if name in names}, **section}


def with_dtype(
    config: ModelConfig, devices: Sequence[jax.Device], *,
    earlier: Mapping[str, Any] | None = None,
) -> ModelConfig:
  """Returns the config with a dtype in place of 'auto'.

  It is that of `earlier`, the section of the run that is resumed, if any; else
  the one for `devices`.
  """
  if config.dtype != 'auto':
    return config
  # cuDNN's kernel needs bfloat16; on CPUs, 'plain' replaces every kernel.
  is_slow = config.attention != 'cudnn' and any(
      device.platform == 'cpu' for device in devices)
  dtype = (earlier or {}).get('dtype', 'float32' if is_slow else 'bfloat16')
  return dataclasses.replace(config, dtype=dtype)


def with_remat(config: ModelConfig, remat: Any) -> ModelConfig:
  """Returns the config with another `remat`, which own models do not have."""
  changes: dict[str, Any] = {'remat': remat} if 'remat' in vars(config) else {}
  return dataclasses.replace(config, **changes)


def for_devices(
    config: ModelConfig, devices: Sequence[jax.Device]) -> ModelConfig:
  """Returns the config with kernels that `devices` support.

  The model may be traced on other devices.
  """
  platforms = {device.platform for device in devices}
  return config.without_fused_kernels(
      platforms.pop() if len(platforms) == 1 else '')


def build(
    config: ModelConfig, *, num_classes: int, **options: Any) -> nn.Module:
  """Returns the module; `num_classes` applies if the config has 0.

  `options` are those of the config's `build`.
  """
  if not config.num_classes:
    config = dataclasses.replace(config, num_classes=num_classes)
  module = config.build(**options)
  return registry.load(registry.DECODER)(module) if config.decoder else module


def init(
    model: nn.Module, key: jax.Array, images: jax.ShapeDtypeStruct | jax.Array,
) -> Any:
  """Returns new parameters, boxed with the names of their axes.

  Only the shape of `images`, [batch, height, width, channels], is used.
  """
  zeros = jax.numpy.zeros((1, *images.shape[1:]), jax.numpy.float32)
  return model.init(key, zeros)['params']
