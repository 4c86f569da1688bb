"""config.json that timm builds an exported model from."""

from collections.abc import Mapping
import math
from typing import Any

from vit_jax import models
from vit_jax.models import resnet_config
from vit_jax.models import variants
from vit_jax.models import vit_config
from vit_jax.weights.configs import preprocessing

# A hybrid's convolutional network is set by the architecture's name alone. For
# a BiT ResNet the name sets the stages, and arguments set the width.
_HYBRIDS: Mapping[tuple[int, ...], str] = {
    (): 'vit_tiny_r_s16_p8_224', (2, 2, 2, 2): 'vit_small_r26_s32_224',
    (3, 4, 9): 'vit_base_r50_s16_224', (3, 4, 6, 3): 'vit_large_r50_s32_224'}
_BITS = ('R50x1', 'R50x3', 'R101x1', 'R101x3', 'R152x2', 'R152x4')
_GLOBAL_POOL = {'cls': 'token', 'average': 'avg', 'attention': 'map'}


def config_files(
    config: models.ModelConfig, resolution: tuple[int, int],
    preprocess: preprocessing.Preprocess,
) -> dict[str, dict[str, Any]]:
  """Returns the JSON files of an exported model, by file name.

  `resolution` is the image size of the position embeddings.

  Raises:
    ValueError: if timm has no architecture for the model.
  """
  result: dict[str, Any] = {
      'num_classes': config.num_classes,
      'pretrained_cfg': {
          'num_classes': config.num_classes,
          'input_size': [3, *preprocess.resolution],
          'mean': list(preprocess.mean), 'std': list(preprocess.std),
          'crop_pct': preprocess.crop,
          'crop_mode': 'center' if preprocess.keep_aspect else 'squash',
          'interpolation': preprocess.interpolation}}
  if preprocess.labels:
    result['label_names'] = list(preprocess.labels)
  if isinstance(config, vit_config.ViTConfig):
    result |= {
        # The arguments override every setting of this architecture.
        'architecture': _hybrid(config) or 'vit_base_patch16_224',
        'global_pool': _GLOBAL_POOL[config.pooling],
        'num_features': config.width,
        'model_args': _arguments(config, resolution)}
  else:
    result |= _bit(config)
  return {'config.json': result}


def _arguments(
    config: vit_config.ViTConfig, resolution: tuple[int, int],
) -> dict[str, Any]:
  ratio = config.mlp_dim / config.width
  arguments: dict[str, Any] = {
      'img_size': list(resolution), 'patch_size': config.patch,
      'embed_dim': config.width, 'depth': config.depth,
      'num_heads': config.num_heads,
      # timm rounds the product down.
      'mlp_ratio': (ratio if int(config.width * ratio) == config.mlp_dim
                    else math.nextafter(ratio, math.inf)),
      'class_token': config.has_cls,
      'global_pool': _GLOBAL_POOL[config.pooling],
      'qkv_bias': config.qkv_bias, 'reg_tokens': config.registers,
      'no_embed_class': not embeds_prefix(config),
      'fc_norm': config.pool_norm,
      'final_norm': config.final_norm or config.pool_norm,
      'act_layer': {'exact': 'gelu', 'tanh': 'gelu_tanh'}[config.gelu]}
  if config.position == 'none':
    arguments['pos_embed'] = 'none'
  if config.layer_scale is not None:
    arguments['init_values'] = config.layer_scale
  return arguments


def _hybrid(config: vit_config.ViTConfig) -> str:
  backbone = config.backbone
  if not backbone:
    return ''
  if backbone.depths not in _HYBRIDS or backbone.width != 64 or (
      backbone.preactivation):
    raise _no_architecture(config)
  return _HYBRIDS[backbone.depths]


def _bit(config: resnet_config.ResNetConfig) -> dict[str, Any]:
  """Returns the architecture of these stages, with arguments for its width."""
  assert config.backbone is not None
  depths, width = config.backbone.depths, config.backbone.width
  names = {variants.backbone(name)['width'] // 64: f'resnetv2_{name[1:]}_bit'
           for name in _BITS if variants.backbone(name)['depths'] == depths}
  if width % 64 == 0 and width // 64 in names:
    return {'architecture': names[width // 64]}
  for factor, name in names.items():
    # timm multiplies both by the factor in the name, to multiples of 8.
    if width % (8 * factor) == 0:
      return {'architecture': name, 'model_args': {
          'stem_chs': width // factor,
          'channels': [4 * 2**stage * width // factor
                       for stage in range(len(depths))]}}
  raise _no_architecture(config)


def _no_architecture(config: models.ModelConfig) -> ValueError:
  assert config.backbone is not None
  return ValueError(
      f'timm has no architecture for {config.variant or "this network"} with '
      f'backbone.depths={config.backbone.depths} and backbone.width='
      f'{config.backbone.width}, so no config.json can be written. Write the '
      'weights alone: --target=FILE.safetensors.')


def embeds_prefix(config: models.ModelConfig) -> bool:
  """Whether timm's class token and registers have position embeddings."""
  return (isinstance(config, vit_config.ViTConfig) and config.position_cls
          and config.has_cls and config.position == 'learned')
