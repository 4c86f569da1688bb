"""Arguments of timm's classes that build a model."""

import dataclasses
import math
from typing import Any

import numpy as np

from vit_jax import models
from vit_jax.models import architecture
from vit_jax.models import rotary as rotary_lib
from vit_jax.models import vit_config
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.configs import timm
from vit_jax.weights.configs import timm_naflex
from vit_jax.weights.families import layout

GLOBAL_POOL = {ours: theirs for theirs, ours in timm.POOLING.items()}
_ACT_LAYER = {ours: theirs for theirs, ours in timm.GELU.items()}


def arguments(model: weights_lib.Weights) -> dict[str, Any]:
  """Returns the arguments of a ViT, for the class that has its settings.

  Raises:
    ValueError: if the class lacks a grid or an interpolation of positions.
  """
  config = model.config
  assert isinstance(config, vit_config.ViTConfig)
  dimensions = _dimensions(config, model.resolution)
  if encoder_architecture(config):
    return {**dimensions, **_encoder_arguments(config, model.resolution)}
  shared = {**dimensions, **_shared_arguments(config)}
  if is_naflex(model):
    return timm_naflex.arguments(
        config, config.grid(model.resolution), model.positions,
        {**shared, **_vit_arguments(config), **_pool_arguments(config)})
  return {**shared, **(
      _relative_arguments(config) if config.has_offset_bias
      else _eva_arguments(config) if is_eva(config)
      else _vit_arguments(config))}


def encoder_architecture(config: models.ModelConfig) -> str:
  """Returns the encoder of a multimodal model with these settings, or ''."""
  names = {'qwen3_vit_88m': 0, 'deepseek_vit_412m': 0}
  if merge := getattr(config, 'merge', 0):  # Hidden units of the projector.
    names = {'qwen3_vit_88m_merge': merge**2 * getattr(config, 'width', 0),
             'deepseek_vit_412m_align': getattr(config, 'merge_dim', 0)}
  return next((
      name for name, hidden in names.items()
      if getattr(config, 'merge_mlp_dim', 0) == hidden
      and all(getattr(config, key, None) == getattr(want, key)
              for want in [models.parse({'variant': name})]
              for key in architecture.switches(want) if key not in (
                  *vit_config.DIMENSIONS, 'merge_mlp_dim', 'merge_dim'))), '')


def is_naflex(model: weights_lib.Weights) -> bool:
  """Whether timm builds a ViT with its class NaFlexVit."""
  return model.preprocess.any_aspect or (
      getattr(model.config, 'position', '') == 'factorized')


def is_eva(config: vit_config.ViTConfig) -> bool:
  """Whether timm builds a model with its class Eva."""
  return config.rotary is not None or not config.key_bias


def is_beit(config: vit_config.ViTConfig) -> bool:
  """Whether timm builds a model with its class Beit."""
  return not config.key_bias and config.position == 'relative_2d'


def is_sapiens2(config: vit_config.ViTConfig) -> bool:
  """Whether the norms of a model of timm's class Eva are those of Sapiens2."""
  return is_eva(config) and config.norm == 'rms'


def is_vit5(config: vit_config.ViTConfig) -> bool:
  """Whether a model is a ViT-5, whose code has timm's names but more arrays."""
  return config.rotary is not None and bool(config.rotary.register_base)


def vit5_frequencies(config: models.ModelConfig) -> dict[str, np.ndarray]:
  """Returns the frequencies that the code of ViT-5 stores, by name."""
  assert isinstance(config, vit_config.ViTConfig)
  rotary = config.rotary
  assert rotary is not None
  return {f'blocks.{layer}.attn.{name}.freqs': rotary_lib.frequencies(
      dataclasses.replace(rotary, base=base), config.head_dim).astype(
          np.float32) for layer in range(config.depth)
          for name, base in (('rope', rotary.base),
                             ('rope_reg', rotary.register_base))}


def has_separate_qkv(config: vit_config.ViTConfig) -> bool:
  """Whether queries, keys and values are separate arrays.

  In timm, EVA-02 B and L and Sapiens2 have three arrays.
  """
  return not is_vit5(config) and (is_sapiens2(config) or (
      is_eva(config) and config.inner_norm != 'none' and not (
          is_beit(config) or (config.qkv_bias and config.key_bias))))


def has_separate_gate(config: vit_config.ViTConfig) -> bool:
  """Whether the gate of SwiGLU has its own array.

  In timm, DINOv3, AIMv2 and EVA-02 B and L have one; DINOv2, Sapiens2 and
  EVA-02 Ti and S do not.
  """
  return config.mlp == 'swiglu' and not is_sapiens2(config) and (
      config.inner_norm != 'none' or not config.proj_bias
      or (config.rotary is not None
          and config.rotary.coordinates == 'normalized'))


def written(
    table: layout.Table, config: vit_config.ViTConfig) -> layout.Table:
  """Returns the table of a family with the rows that a model has in timm."""
  return table.without(
      '.mlp_bias' if config.qkv_bias else '.in_proj.bias',
      *(('_out_proj.',) if config.differential else ('.out_proj.',)),
      *(('.ls1.', '.ls2.') if is_eva(config) else ('.gamma_',)),
      *(('rel_pos.',) if is_beit(config) else
        ('attn.relative_position_bias_table', 'rel_pos_bias.')),
      *(('attn.qkv.', 'v}_bias') if has_separate_qkv(config)
        else ('v}_proj.',)),
      *(('.fc1.',) if has_separate_gate(config) else ('.fc1_x.', '.fc1_g.')))


def _dimensions(
    config: vit_config.ViTConfig, resolution: tuple[int, int],
) -> dict[str, Any]:
  return {'img_size': list(resolution), 'patch_size': config.patch,
          'embed_dim': config.width, 'depth': config.depth,
          'num_heads': config.num_heads}


def _encoder_arguments(
    config: vit_config.ViTConfig, resolution: tuple[int, int],
) -> dict[str, Any]:
  """Returns arguments of timm's encoders of multimodal models.

  Raises:
    ValueError: if the grid of position embeddings is not square.
  """
  arguments = {'mlp_ratio': mlp_ratio(config.mlp_dim, config.width)}
  if config.merge:
    arguments['out_features'] = config.merge_dim
  if config.position == 'learned':
    rows, columns = config.grid(resolution)
    if rows != columns:
      raise ValueError(
          f'timm has square grids of position embeddings for this model, but '
          f'the grid is {rows}x{columns}. Save it as orbax.')
    arguments['pos_embed_grid_size'] = rows
  return arguments


def _shared_arguments(config: vit_config.ViTConfig) -> dict[str, Any]:
  arguments: dict[str, Any] = {
      'global_pool': GLOBAL_POOL[config.pooling], 'qkv_bias': config.qkv_bias}
  if not config.has_offset_bias:
    arguments |= {'class_token': config.has_cls, 'qk_norm': config.qk_norm,
                  'no_embed_class': not embeds_prefix(config)}
  if config.layer_scale is not None:
    arguments['init_values'] = config.layer_scale
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
  if config.layer_norm_epsilon == 1e-6 and (
      config.norm == 'rms' or config.parallel):
    arguments['norm_layer'] = f'{config.norm}norm'
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
  if not config.layer_scale_mlp:
    arguments['attn_only_layer_scale'] = True
  if is_sapiens2(config):
    arguments['num_kv_heads'] = config.num_heads
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


def embeds_prefix(config: vit_config.ViTConfig) -> bool:
  """Whether timm's class token and registers have position embeddings."""
  return (config.position_cls and config.has_cls
          and config.position == 'learned')
