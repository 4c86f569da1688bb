"""The JSON that timm and Hugging Face want beside weights."""

from collections.abc import Mapping
import math
from typing import Any

from vit_jax.weights.configs import config_json
from vit_jax.weights.configs import preprocessing as preprocessing_lib

# timm's architectures, from which `model_args` makes others. A hybrid's network
# is given by the name alone; for a BiT the stages are, its width is not.
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


def timm(
    plain: Mapping[str, Any], resolution: tuple[int, int],
    preprocess: preprocessing_lib.Preprocess,
) -> dict[str, Any]:
  """Returns the config.json that timm builds a model from.

  Args:
    plain: section `model`, every dimension filled.
    resolution: height and width that the positions are for.
    preprocess: what images go through.

  Raises:
    ValueError: if timm has nothing that it could build such a model of.
  """
  side: dict[str, Any] = {
      'num_classes': plain['num_classes'],
      'pretrained_cfg': {**preprocessing_lib.to_timm(preprocess),
                         'num_classes': plain['num_classes']}}
  if preprocess.labels:
    side['label_names'] = list(preprocess.labels)
  if plain['name'] == 'resnet':
    return {**_timm_bit(plain), **side}
  pool = {'cls': 'token', 'average': 'avg', 'attention': 'map'}[
      plain['pooling']]
  # Any plain one will do: the arguments say all that it says.
  architecture = 'vit_base_patch16_224'
  if plain['backbone']:
    architecture = _timm_hybrid(plain)
  return {'architecture': architecture, 'global_pool': pool,
          'num_features': plain['width'],
          'model_args': _timm_arguments(plain, resolution, pool), **side}


def _timm_arguments(
    plain: Mapping[str, Any], resolution: tuple[int, int], pool: str,
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
      'class_token': has_cls(plain), 'global_pool': pool,
      'qkv_bias': plain['qkv_bias'], 'reg_tokens': plain['registers'],
      'no_embed_class': not has_prefix_positions(plain),
      'fc_norm': plain['pool_norm'],
      'final_norm': plain['final_norm'] or plain['pool_norm'],
      'act_layer': {'exact': 'gelu', 'tanh': 'gelu_tanh'}[plain['gelu']]}
  if plain['position'] == 'none':
    arguments['pos_embed'] = 'none'
  if plain['layer_scale'] is not None:
    arguments['init_values'] = plain['layer_scale']
  return arguments


def _timm_hybrid(plain: Mapping[str, Any]) -> str:
  backbone = plain['backbone']
  depths = tuple(backbone['depths'])
  if depths not in _HYBRIDS or backbone['width'] != 64 or (
      backbone['preactivation']):
    raise _nothing_alike(plain)
  return _HYBRIDS[depths]


def _timm_bit(plain: Mapping[str, Any]) -> dict[str, Any]:
  """Names the model that timm has, else another of its stages and our width."""
  depths, width = tuple(plain['backbone']['depths']), plain['backbone']['width']
  alike = {name: factor for name, (stages, factor) in _BITS.items()
           if stages == depths}
  for name, factor in alike.items():
    if width == 64 * factor:
      return {'architecture': name}
  for name, factor in alike.items():
    # timm multiplies both by the factor of the name, to multiples of 8.
    if width % (8 * factor) == 0:
      return {'architecture': name, 'model_args': {
          'stem_chs': width // factor,
          'channels': [4 * 2**stage * width // factor
                       for stage in range(len(depths))]}}
  raise _nothing_alike(plain)


def _nothing_alike(plain: Mapping[str, Any]) -> ValueError:
  backbone = plain['backbone']
  return ValueError(
      f'timm has no architecture for {plain["variant"] or "this network"} with '
      f'backbone.depths={tuple(backbone["depths"])} and backbone.width='
      f'{backbone["width"]} that a config.json could name. Write the weights '
      'alone: --target=FILE.safetensors.')


def has_cls(plain: Mapping[str, Any]) -> bool:
  """Whether there is a class token."""
  return plain['pooling'] == 'cls' if plain['cls'] is None else plain['cls']


def has_prefix_positions(plain: Mapping[str, Any]) -> bool:
  """Whether the class token has a position: timm's registers then have."""
  return (plain['name'] == 'vit' and plain['position_cls'] and has_cls(plain)
          and plain['position'] == 'learned')


def huggingface(
    plain: Mapping[str, Any], resolution: tuple[int, int],
    preprocess: preprocessing_lib.Preprocess,
) -> dict[str, Any]:
  """Returns the config.json of a Hugging Face ViT; arguments as of `timm`.

  Raises:
    ValueError: if there are not as many labels as classes.
  """
  classes = plain['num_classes']
  labels = preprocess.labels or tuple(f'LABEL_{i}' for i in range(classes))
  if len(labels) != classes:
    raise ValueError(
        f'There are {len(labels)} names for {classes} classes.')
  height, width = resolution
  patch = plain['patch']
  return {
      'architectures': [
          'ViTForImageClassification' if classes else 'ViTModel'],
      'model_type': 'vit',
      'hidden_size': plain['width'], 'num_hidden_layers': plain['depth'],
      'num_attention_heads': plain['num_heads'],
      'intermediate_size': plain['mlp_dim'],
      'hidden_act': {'exact': 'gelu', 'tanh': 'gelu_pytorch_tanh'}[
          plain['gelu']],
      'layer_norm_eps': plain['layer_norm_epsilon'],
      'hidden_dropout_prob': 0.0, 'attention_probs_dropout_prob': 0.0,
      'initializer_range': 0.02,
      'image_size': height if height == width else [height, width],
      'patch_size': patch if isinstance(patch, int) else list(patch),
      'num_channels': 3, 'qkv_bias': plain['qkv_bias'],
      'id2label': {str(i): label for i, label in enumerate(labels)},
      'label2id': {label: i for i, label in enumerate(labels)},
      **({'problem_type': config_json.PROBLEMS[preprocess.activation]}
         if preprocess.activation in config_json.PROBLEMS else {}),
      'torch_dtype': 'float32'}
