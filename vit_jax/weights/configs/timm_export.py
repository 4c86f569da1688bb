"""config.json that timm builds an exported model from."""

from collections.abc import Mapping
import math
from typing import Any

from vit_jax import models
from vit_jax.data.images import resize as resize_lib
from vit_jax.models import architecture
from vit_jax.models import vit_config
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.configs import preprocessing
from vit_jax.weights.configs import timm
from vit_jax.weights.configs import timm_naflex
from vit_jax.weights.families import published_sizes

# The convolutional network is set by the architecture's name alone.
_HYBRIDS: Mapping[tuple[int, ...], str] = {
    (): 'vit_tiny_r_s16_p8_224', (2, 2, 2, 2): 'vit_small_r26_s32_224',
    (3, 4, 9): 'vit_base_r50_s16_224', (3, 4, 6, 3): 'vit_large_r50_s32_224'}
_BITS = ('R50x1', 'R50x3', 'R101x1', 'R101x3', 'R152x2', 'R152x4')
# Epsilons of the norms in timm's architectures, which no argument sets.
EPSILONS = (1e-6, 1e-5)
# Settings of models with relative biases that arguments set.
_RELATIVE = (
    *vit_config.DIMENSIONS, 'position', 'position_at', 'position_mlp_dim',
    'cls', 'qkv_bias', 'key_bias', 'qk_norm', 'post_norm', 'layer_scale',
    'gelu', 'pooling', 'pool_norm', 'final_norm')
_GLOBAL_POOL = {ours: theirs for theirs, ours in timm.POOLING.items()}
_ACT_LAYER = {ours: theirs for theirs, ours in timm.GELU.items()}


def config_files(model: weights_lib.Weights) -> dict[str, dict[str, Any]]:
  """Returns the JSON files of an exported model, by file name.

  Raises:
    ValueError: if timm has no architecture for the model.
  """
  config, preprocess = model.config, model.preprocess
  result: dict[str, Any] = {
      'num_classes': config.num_classes,
      'pretrained_cfg': {
          'num_classes': config.num_classes,
          'input_size': [3, *preprocess.resolution],
          'mean': list(preprocess.mean), 'std': list(preprocess.std),
          **_resize_and_crop(preprocess)}}
  if preprocess.labels:
    result['label_names'] = list(preprocess.labels)
  if isinstance(config, vit_config.ViTConfig):
    naflex = is_naflex(model)
    if naflex and not timm_naflex.supports(config):
      raise _no_architecture(config, *architecture.non_default(config))
    result |= {
        # The arguments override the settings of this architecture.
        'architecture': (
            timm_naflex.ARCHITECTURE if naflex else _architecture(config)),
        'global_pool': _GLOBAL_POOL[config.pooling],
        'num_features': config.width,
        'model_args': _encoder_arguments(config, model.resolution)
                      if encoder_architecture(config) else
                      timm_naflex.arguments(
            config, config.grid(model.resolution), model.positions, {
                **_shared_arguments(config, model.resolution),
                **_vit_arguments(config), **_pool_arguments(config)})
                      if naflex else {
            **_shared_arguments(config, model.resolution),
            **(_relative_arguments(config) if config.has_offset_bias
               else _eva_arguments(config) if is_eva(config)
               else _vit_arguments(config))}}
  else:
    name = next((name for name in _BITS
                 if published_sizes.has_dimensions(config, name)), None)
    if name is None:
      raise _no_architecture(config, 'backbone')
    result['architecture'] = f'resnetv2_{name[1:]}_bit'
  return {'config.json': result}


def _resize_and_crop(preprocess: preprocessing.Preprocess) -> dict[str, Any]:
  """Returns the resize and crop in pretrained_cfg.

  Raises:
    ValueError: if timm cannot express the operations.
  """
  match preprocess.ops:
    case [resize_lib.ResizeToPatches() as op] if (
        op == op.at(preprocess.resolution)):
      return {'crop_pct': 1.0, 'crop_mode': 'center',
              'interpolation': op.method}
  resize, _ = preprocess.check_resize_and_crop(
      'timm', remedy='Save the model as orbax or npz.')
  before = resize.least
  resolution = preprocess.resolution
  # timm resizes to int(side / crop_pct), which may round down to a pixel less.
  fraction = min(1.0, resolution[0] / before[0])
  while fraction and int(resolution[0] / fraction) < before[0]:
    fraction = math.nextafter(fraction, 0)
  sizes = tuple(int(side / fraction) for side in resolution)
  square = resolution[0] == resolution[1]
  if sizes != before or (resize.shorter and not square):
    raise ValueError(
        f'timm cannot express the operations {preprocess.sections}: its '
        'central crop keeps the same fraction of both sides. Save the model as '
        'orbax or npz.')
  return {'crop_pct': fraction,
          'crop_mode': 'squash' if resize.size else 'center',
          'interpolation': resize.method}


def encoder_architecture(config: models.ModelConfig) -> str:
  """Returns the encoder of a multimodal model with these settings, or ''."""
  return next((
      name for name in ('qwen3_vit_88m', 'deepseek_vit_412m')
      if all(getattr(config, key, None) == getattr(want, key)
             for want in [models.parse({'variant': name})]
             for key in architecture.switches(want)
             if key not in vit_config.DIMENSIONS)), '')


def is_naflex(model: weights_lib.Weights) -> bool:
  """Whether timm builds a model with its class NaFlexVit."""
  return isinstance(model.config, vit_config.ViTConfig) and (
      model.preprocess.any_aspect or model.config.position == 'factorized')


def is_eva(config: models.ModelConfig) -> bool:
  """Whether timm builds a model with its class Eva."""
  return isinstance(config, vit_config.ViTConfig) and (
      config.rotary is not None or not config.key_bias)


def is_beit(config: models.ModelConfig) -> bool:
  """Whether timm builds a model with its class Beit."""
  return isinstance(config, vit_config.ViTConfig) and is_eva(config) and (
      config.position == 'relative_2d')


def has_separate_qkv(config: vit_config.ViTConfig) -> bool:
  """Whether queries, keys and values are separate arrays, as in EVA-02 B, L."""
  return is_eva(config) and config.inner_norm != 'none' and not (
      is_beit(config) or (config.qkv_bias and config.key_bias))


def has_separate_gate(config: vit_config.ViTConfig) -> bool:
  """Whether the gate of SwiGLU has its own array.

  In timm, DINOv3, AIMv2 and EVA-02 B and L have one; DINOv2 and EVA-02 Ti and S
  do not.
  """
  return config.mlp == 'swiglu' and (
      config.inner_norm != 'none' or not config.proj_bias
      or (config.rotary is not None
          and config.rotary.coordinates == 'normalized'))


def _architecture(config: vit_config.ViTConfig) -> str:
  """Returns the architecture with the settings that are no arguments.

  Raises:
    ValueError: if timm has none.
  """
  if name := encoder_architecture(config):
    return name
  if backbone := config.backbone:
    name = _HYBRIDS.get(tuple(backbone.depths), '')
    if not name or backbone.width != 64 or backbone.preactivation:
      raise _no_architecture(config, 'backbone')
    return name
  if config.has_offset_bias:
    return _relative_architecture(config)
  swiglu = config.mlp == 'swiglu'
  plain = config.norm == 'layer' and config.stem_norm != 'patches'
  if is_eva(config):
    scaled = config.layer_scale is not None
    rotary = config.rotary
    # No argument removes the layer scale or the reference grid of rotary
    # positions.
    referred = scaled or rotary is None or rotary.reference or (
        rotary.learned or rotary.coordinates == 'normalized')
    possible = (
        plain and config.proj_bias and (swiglu or config.gelu == 'exact')
        and config.pool_prefix == (config.pooling == 'attention') and referred)
    names = (('vit_small_patch16_rope_224', 'vit_small_patch16_dinov3')
             if scaled else
             ('eva02_base_patch14_224', 'vit_pe_core_base_patch16_224'))
  else:
    separate = has_separate_gate(config)
    aimv2 = (config.norm == 'rms' and config.stem_norm == 'patches'
             and separate)
    possible = ((plain and not separate) or aimv2) and not (
        config.pool_heads or config.pool_mlp_dim)
    names = (2 * ('aimv2_large_patch14_224',) if aimv2 else
             2 * ('vit_giant_patch14_dinov2',) if swiglu else
             ('vit_base_patch16_224', 'vit_base_patch16_clip_224'))
  name = names[config.layer_norm_epsilon == EPSILONS[1]]
  if config.distill_token:
    possible = possible and name == 'vit_base_patch16_224' and (
        not config.registers and embeds_prefix(config))
    name = 'deit_base_distilled_patch16_224'
  elif config.post_norm and not is_eva(config):
    possible = possible and name == 'vit_base_patch16_224'
    name = 'vit_base_patch16_rpn_224'
  if not (possible and config.pool_norm_affine and (
      config.mlp_bias or not config.proj_bias)):
    raise _no_architecture(
        config, 'rotary', 'norm', 'stem_norm', 'layer_scale', 'mlp', 'gelu',
        'inner_norm', 'proj_bias', 'mlp_bias', 'pool_norm_affine',
        'pool_prefix', 'pool_heads', 'pool_mlp_dim', 'distill_token',
        'registers', 'position_cls', 'post_norm')
  return name


def _relative_architecture(config: vit_config.ViTConfig) -> str:
  """Returns the architecture of a model with relative biases.

  Raises:
    ValueError: if timm has none.
  """
  beit = is_beit(config)
  if set(architecture.non_default(config)) - {*_RELATIVE} or (
      config.gelu != 'exact' or config.key_bias == beit
      or config.final_norm == config.pool_norm
      or config.pooling not in ('cls', 'average') or (beit and (
          not config.has_cls or config.qk_norm or config.post_norm))):
    raise _no_architecture(config, *architecture.non_default(config))
  return ('beit_base_patch16_224' if beit else
          'vit_relpos_base_patch16_rpn_224' if config.post_norm else
          'vit_relpos_base_patch16_224')


def _no_architecture(config: models.ModelConfig, *names: str) -> ValueError:
  settings = ', '.join(f'{name}={getattr(config, name)!r}' for name in names)
  return ValueError(
      f'timm has no architecture with {settings}, so no config.json can be '
      'written. Write the weights alone: --target=FILE.safetensors.')


def _shared_arguments(
    config: vit_config.ViTConfig, resolution: tuple[int, int],
) -> dict[str, Any]:
  arguments: dict[str, Any] = {
      'img_size': list(resolution), 'patch_size': config.patch,
      'embed_dim': config.width, 'depth': config.depth,
      'num_heads': config.num_heads,
      'global_pool': _GLOBAL_POOL[config.pooling], 'qkv_bias': config.qkv_bias}
  if not config.has_offset_bias:
    arguments |= {'class_token': config.has_cls, 'qk_norm': config.qk_norm,
                  'no_embed_class': not embeds_prefix(config)}
  if config.layer_scale is not None:
    arguments['init_values'] = config.layer_scale
  return arguments


def _encoder_arguments(
    config: vit_config.ViTConfig, resolution: tuple[int, int],
) -> dict[str, Any]:
  """Returns arguments of timm's encoders of multimodal models.

  Raises:
    ValueError: if the grid of position embeddings is not square.
  """
  arguments: dict[str, Any] = {
      'img_size': list(resolution), 'patch_size': config.patch,
      'embed_dim': config.width, 'depth': config.depth,
      'num_heads': config.num_heads,
      'mlp_ratio': mlp_ratio(config.mlp_dim, config.width)}
  if config.position == 'learned':
    rows, columns = config.grid(resolution)
    if rows != columns:
      raise ValueError(
          f'timm has square grids of position embeddings for this model, but '
          f'the grid is {rows}x{columns}. Save it as orbax.')
    arguments['pos_embed_grid_size'] = rows
  return arguments


def _vit_arguments(config: vit_config.ViTConfig) -> dict[str, Any]:
  """Returns arguments of timm's class VisionTransformer."""
  packed = config.mlp == 'swiglu' and not has_separate_gate(config)
  arguments: dict[str, Any] = {
      'reg_tokens': config.registers, 'fc_norm': config.pool_norm,
      'mlp_ratio': mlp_ratio((1 + packed) * config.mlp_dim, config.width),
      'final_norm': config.final_norm or config.pool_norm,
      'pre_norm': config.stem_norm == 'tokens',
      'proj_bias': config.proj_bias,
      'scale_attn_norm': config.inner_norm == 'both',
      'scale_mlp_norm': config.inner_norm != 'none',
      'pool_include_prefix': config.pool_prefix}
  if config.mlp == 'gelu':
    arguments['act_layer'] = _ACT_LAYER[config.gelu]
  if config.position == 'none':
    arguments['pos_embed'] = 'none'
  return arguments


def _eva_arguments(config: vit_config.ViTConfig) -> dict[str, Any]:
  """Returns arguments of timm's class Eva."""
  rotary = config.rotary
  arguments: dict[str, Any] = {
      'num_reg_tokens': config.registers, 'dynamic_img_size': False,
      'mlp_ratio': mlp_ratio(config.mlp_dim, config.width),
      'attn_type': 'rope' if config.key_bias else 'eva',
      'qkv_fused': not has_separate_qkv(config),
      'swiglu_mlp': config.mlp == 'swiglu',
      'swiglu_align_to': int(has_separate_gate(config)),
      'scale_mlp': config.inner_norm != 'none',
      'scale_attn_inner': config.inner_norm == 'both',
      'use_pre_transformer_norm': config.stem_norm == 'tokens',
      'use_post_transformer_norm': config.final_norm,
      'use_fc_norm': config.pool_norm, 'use_post_norm': config.post_norm,
      'use_abs_pos_emb': config.position == 'learned',
      'use_rot_pos_emb': rotary is not None}
  arguments |= _pool_arguments(config)
  if rotary is not None:
    arguments |= {
        'rope_type': ('mixed' if rotary.learned else 'dinov3'
                      if rotary.coordinates == 'normalized' else 'cat'),
        'rope_temperature': rotary.base, 'rope_rotate_half': rotary.halves,
        'rope_grid_indexing': 'xy' if rotary.x_first else 'ij',
        'rope_grid_offset': rotary.offset}
    if rotary.reference:
      arguments['ref_feat_shape'] = [rotary.reference] * 2
  return arguments


def _pool_arguments(config: vit_config.ViTConfig) -> dict[str, Any]:
  """Returns arguments of attention pooling."""
  return {} if config.pooling != 'attention' else {
      'attn_pool_num_heads': config.pool_heads or config.num_heads,
      'attn_pool_mlp_ratio': mlp_ratio(
          config.pool_mlp_dim or config.mlp_dim, config.width)}


def _relative_arguments(config: vit_config.ViTConfig) -> dict[str, Any]:
  """Returns arguments of timm's classes Beit and VisionTransformerRelPos."""
  shared = config.position_at == 'shared'
  kind = 'mlp' if config.position == 'relative_mlp' else 'bias'
  arguments = {'mlp_ratio': mlp_ratio(config.mlp_dim, config.width),
               'init_values': config.layer_scale or 0.0}
  if is_beit(config):
    return {**arguments, 'use_rel_pos_bias': not shared,
            'use_shared_rel_pos_bias': shared, 'use_fc_norm': config.pool_norm}
  return {**arguments, 'class_token': config.has_cls, 'qk_norm': config.qk_norm,
          'fc_norm': config.pool_norm, 'shared_rel_pos': shared,
          'rel_pos_type': kind, 'rel_pos_dim': config.position_mlp_dim}


def mlp_ratio(hidden: int, width: int) -> float:
  """Returns the ratio whose product with the width timm rounds to `hidden`."""
  ratio = hidden / width
  # timm rounds the product down.
  return ratio if int(width * ratio) == hidden else math.nextafter(
      ratio, math.inf)


def embeds_prefix(config: models.ModelConfig) -> bool:
  """Whether timm's class token and registers have position embeddings."""
  return (isinstance(config, vit_config.ViTConfig) and config.position_cls
          and config.has_cls and config.position == 'learned')
