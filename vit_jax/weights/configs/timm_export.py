"""config.json that timm builds an exported model from."""

from collections.abc import Mapping
import math
from typing import Any

from vit_jax.weights.configs import preprocessing
from vit_jax.weights.configs import timm

# A hybrid's convolutional network is set by the architecture's name alone. For
# a BiT ResNet the name sets the stages, and arguments set the width.
_HYBRIDS: Mapping[tuple[int, ...], str] = {
    (): 'vit_tiny_r_s16_p8_224', (2, 2, 2, 2): 'vit_small_r26_s32_224',
    (3, 4, 9): 'vit_base_r50_s16_224', (3, 4, 6, 3): 'vit_large_r50_s32_224'}
_BITS: Mapping[str, tuple[tuple[int, ...], int]] = {
    'resnetv2_50x1_bit': ((3, 4, 6, 3), 1),
    'resnetv2_50x3_bit': ((3, 4, 6, 3), 3),
    'resnetv2_101x1_bit': ((3, 4, 23, 3), 1),
    'resnetv2_101x3_bit': ((3, 4, 23, 3), 3),
    'resnetv2_152x2_bit': ((3, 8, 36, 3), 2),
    'resnetv2_152x4_bit': ((3, 8, 36, 3), 4)}
_GLOBAL_POOL = {'cls': 'token', 'average': 'avg', 'attention': 'map'}


def config_files(
    plain: Mapping[str, Any], resolution: tuple[int, int],
    preprocess: preprocessing.Preprocess,
) -> dict[str, dict[str, Any]]:
  """Returns the JSON files of an exported model, by file name.

  Args:
    plain: section `model`, with every dimension.
    resolution: image height and width of the position embeddings.
    preprocess: preprocessing of images.

  Raises:
    ValueError: if timm has no architecture for the model.
  """
  config: dict[str, Any] = {
      'num_classes': plain['num_classes'],
      'pretrained_cfg': {
          'num_classes': plain['num_classes'],
          'input_size': [3, *preprocess.resolution],
          'mean': list(preprocess.mean), 'std': list(preprocess.std),
          'crop_pct': preprocess.crop,
          'crop_mode': 'center' if preprocess.keep_aspect else 'squash',
          'interpolation': preprocess.interpolation}}
  if preprocess.labels:
    config['label_names'] = list(preprocess.labels)
  if plain['name'] == 'resnet':
    config |= _bit(plain)
  else:
    config |= {
        # The arguments override every setting of this architecture.
        'architecture': _hybrid(plain) or 'vit_base_patch16_224',
        'global_pool': _GLOBAL_POOL[plain['pooling']],
        'num_features': plain['width'],
        'model_args': _arguments(plain, resolution)}
  return {'config.json': config}


def _arguments(
    plain: Mapping[str, Any], resolution: tuple[int, int],
) -> dict[str, Any]:
  width, mlp_dim = plain['width'], plain['mlp_dim']
  ratio = mlp_dim / width
  arguments: dict[str, Any] = {
      'img_size': list(resolution), 'patch_size': plain['patch'],
      'embed_dim': width, 'depth': plain['depth'],
      'num_heads': plain['num_heads'],
      # timm rounds the product down.
      'mlp_ratio': ratio if int(width * ratio) == mlp_dim else (
          math.nextafter(ratio, math.inf)),
      'class_token': has_cls(plain),
      'global_pool': _GLOBAL_POOL[plain['pooling']],
      'qkv_bias': plain['qkv_bias'], 'reg_tokens': plain['registers'],
      'no_embed_class': not embeds_prefix(plain),
      'fc_norm': plain['pool_norm'],
      'final_norm': plain['final_norm'] or plain['pool_norm'],
      'act_layer': {'exact': 'gelu', 'tanh': 'gelu_tanh'}[plain['gelu']]}
  if plain['position'] == 'none':
    arguments['pos_embed'] = 'none'
  if plain['layer_scale'] is not None:
    arguments['init_values'] = plain['layer_scale']
  return arguments


def _hybrid(plain: Mapping[str, Any]) -> str:
  backbone = plain['backbone']
  if not backbone:
    return ''
  depths = tuple(backbone['depths'])
  if depths not in _HYBRIDS or backbone['width'] != 64 or (
      backbone['preactivation']):
    raise _no_architecture(plain)
  return _HYBRIDS[depths]


def _bit(plain: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the architecture of these stages, with arguments for its width."""
  depths, width = tuple(plain['backbone']['depths']), plain['backbone']['width']
  factors = {name: factor for name, (stages, factor) in _BITS.items()
             if stages == depths}
  for name, factor in factors.items():
    if width == 64 * factor:
      return {'architecture': name}
  for name, factor in factors.items():
    # timm multiplies both by the factor in the name, to multiples of 8.
    if width % (8 * factor) == 0:
      return {'architecture': name, 'model_args': {
          'stem_chs': width // factor,
          'channels': [4 * 2**stage * width // factor
                       for stage in range(len(depths))]}}
  raise _no_architecture(plain)


def _no_architecture(plain: Mapping[str, Any]) -> ValueError:
  backbone = plain['backbone']
  return ValueError(
      f'timm has no architecture for {plain["variant"] or "this network"} with '
      f'backbone.depths={tuple(backbone["depths"])} and backbone.width='
      f'{backbone["width"]}, so no config.json can be written. Write the '
      'weights alone: --target=FILE.safetensors.')


def has_cls(plain: Mapping[str, Any]) -> bool:
  """Whether the model has a class token."""
  return plain['pooling'] == 'cls' if plain['cls'] is None else plain['cls']


def embeds_prefix(plain: Mapping[str, Any]) -> bool:
  """Whether timm's class token and registers have position embeddings."""
  return (plain['name'] == 'vit' and plain['position_cls'] and has_cls(plain)
          and plain['position'] == 'learned')


def parse_files(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
  """Returns the keys of `Preprocess` in the files of `config_files`."""
  return timm.parse_preprocessing(files['config.json'])
