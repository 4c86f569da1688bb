"""Arguments of timm's class NaFlexVit.

Source: NaFlexVitCfg and the architectures in timm 1.0.31, models/naflexvit.py.
"""

from collections.abc import Mapping
import re
from typing import Any

from vit_jax.models import vit_config

# Its arguments are overridden; no other architecture has fewer.
ARCHITECTURE = 'naflexvit_base_patch16_siglip'
# Arguments that are read, or that the arrays determine.
KNOWN = (
    'class_token', 'mlp_ratio', 'global_pool', 'init_values', 'num_classes',
    'qkv_bias', 'qk_norm', 'proj_bias', 'fc_norm', 'final_norm', 'pre_norm',
    'act_layer', 'img_size', 'scale_mlp_norm', 'scale_attn_inner_norm',
    'attn_pool_mlp_ratio', 'pos_embed', 'pos_embed_grid_size',
    'pos_embed_interp_mode', 'pos_embed_antialias', 'pos_embed_align_corners',
    'pos_embed_ar_preserving')

# Interpolation of position embeddings: mode, anti-aliasing, aligned corners,
# and whether the aspect ratio is kept.
_INTERPOLATION: Mapping[str, tuple[Any, ...]] = {
    '.*_par(fac)?_.*': ('bicubic', True, False, True),
    '.*_siglip': ('bilinear', True, False, False),
    '.*_(base|huge)_.*_radio_v3': ('bilinear', False, True, True),
    '.*_radio_.*': ('bilinear', False, False, True),
    '.*': ('bicubic', True, False, False)}
_METHODS: Mapping[tuple[Any, ...], vit_config.Interpolation] = {
    ('bicubic', True, False): 'cubic', ('bicubic', False, False): 'bicubic',
    ('bilinear', True, False): 'bilinear',
    ('bilinear', False, False): 'bilinear_sharp',
    ('bilinear', False, True): 'linear'}


def positions(name: str, arguments: Mapping[str, Any]) -> Any:
  """Returns the interpolation of the position embeddings of an architecture.

  Raises:
    ValueError: if our models lack it.
  """
  implied = next(values for pattern, values in _INTERPOLATION.items()
                 if re.fullmatch(pattern, name))
  *key, keeps_aspect = (
      arguments.get(key, value) for key, value in zip(KNOWN[-4:], implied))
  if arguments.get('pos_embed', 'factorized' * ('_parfac_' in name)) == (
      'factorized'):  # Always linear.
    key = ['bilinear', False, False]
  if tuple(key) not in _METHODS:
    raise ValueError(f'model_args has {dict(zip(KNOWN[-4:], key))}: our models '
                     'lack that interpolation of position embeddings.')
  return _METHODS[tuple(key)] + '_square' * keeps_aspect


def supports(config: vit_config.ViTConfig) -> bool:
  """Whether NaFlexVit has the settings that no argument sets."""
  return (
      config.norm == 'layer' and config.layer_norm_epsilon == 1e-6
      and config.mlp == 'gelu' and config.stem_norm != 'patches'
      and not (config.rotary or config.backbone or config.post_norm
               or config.distill_token or config.has_offset_bias
               or config.parallel or config.paired or config.differential)
      and config.key_bias and config.mlp_bias and config.pool_norm_affine
      and config.layer_scale_mlp
      and not (config.final_norm and config.pool_norm)
      and not (config.has_cls and config.position_cls))


def arguments(
    config: vit_config.ViTConfig, grid: tuple[int, int], method: str,
    vit: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns the arguments of a model.

  Args:
    config: a model that NaFlexVit `supports`.
    grid: rows and columns of the position embeddings.
    method: interpolation of the position embeddings.
    vit: arguments of VisionTransformer, some of which NaFlexVit lacks.

  Raises:
    ValueError: if timm lacks the interpolation.
  """
  plain = method.removesuffix('_square')
  key = next((key for key, name in _METHODS.items() if name == plain), None)
  if key is None:
    raise ValueError(
        f'timm has no NaFlex ViT with positions {method!r}. Set another: '
        "load(..., positions='cubic').")
  renamed = {**vit, 'scale_attn_inner_norm': vit['scale_attn_norm']}
  return {
      **{name: value for name, value in renamed.items()
         if name not in ('img_size', 'no_embed_class', 'scale_attn_norm')},
      'pos_embed': config.position, 'pos_embed_grid_size': list(grid),
      **dict(zip(KNOWN[-4:], (*key, plain != method)))}
