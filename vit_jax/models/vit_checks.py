"""Checks of the settings of a Vision Transformer against each other."""

import math
from typing import Any

from vit_jax import schema

DIMENSIONS = ('width', 'depth', 'mlp_dim', 'num_heads', 'patch')


def check(config: Any) -> None:
  """Raises a ValueError for values of a `ViTConfig` that exclude each other."""
  schema.check_range(
      config, 'dropout', 'attention_dropout', 'stochastic_depth', end=1)
  schema.check_range(
      config, *DIMENSIONS, 'num_kv_heads', 'num_classes', 'registers',
      'pool_heads', 'pool_mlp_dim', 'projection', 'merge', 'merge_mlp_dim',
      'merge_dim')
  schema.check_range(config, 'unroll', 'position_mlp_dim', low=1)
  for heads in (config.num_heads, config.pool_heads):
    if config.width and heads and config.width % heads:
      raise ValueError(
          f'width {config.width} does not divide into {heads} heads.')
  learned = config.rotary is not None and config.rotary.learned
  if config.num_kv_heads and (
      config.num_heads % config.num_kv_heads
      or (learned and 'kv' in config.projections)):
    raise ValueError(
        'num_kv_heads must divide num_heads, without rotary.learned, but is '
        f'{config.num_kv_heads} for {config.num_heads} heads.')
  if config.attention == 'cudnn' and config.dtype == 'float32':
    raise ValueError(
        "attention 'cudnn' needs bfloat16, but dtype is 'float32'. Set dtype "
        "to 'bfloat16', or attention to 'plain'.")
  _check_tokens(config)
  _check_positions(config)
  layers = config.decoder.layers if config.decoder else ()
  if layers and (config.axial or max(layers) > config.depth > 0):
    raise ValueError(
        f'decoder.layers is {layers}, but must be numbers from 1 to depth='
        f'{config.depth}, of layers without axial attention.')


def _check_tokens(config: Any) -> None:
  if config.pooling.startswith('cls') and config.cls is False:
    raise ValueError(
        f'pooling {config.pooling!r} needs the class token, but cls is false. '
        "Set pooling to 'average' or 'attention', or leave cls out.")
  if config.axial and (config.has_cls or config.registers):
    raise ValueError(
        'Axial attention supports neither a class token nor registers. Set '
        "pooling to 'average' or 'attention', cls to false and registers to "
        '0.')
  if len({bool(config.merge), bool(config.merge_mlp_dim),
          bool(config.merge_dim)}) > 1 or (config.merge and (
              config.pooling != 'average' or config.pool_prefix)):
    raise ValueError(
        "merge needs merge_mlp_dim, merge_dim and pooling 'average' without "
        f'pool_prefix, but merge={config.merge}, merge_mlp_dim='
        f'{config.merge_mlp_dim}, merge_dim={config.merge_dim}, '
        f'pooling={config.pooling!r}, pool_prefix={config.pool_prefix}.')
  if config.paired and config.parallel:
    raise ValueError('paired excludes parallel layers.')
  if config.post_norm and (config.parallel or config.layer_scale is not None):
    raise ValueError('post_norm excludes parallel layers and layer_scale.')
  if config.distill_token and (
      config.pooling != 'cls' or config.pool_norm or config.representation_layer
      or config.projection or config.cosine_head):
    raise ValueError(
        "distill_token needs pooling 'cls', and a linear head without pool_"
        'norm, representation_layer, projection and cosine_head.')


def _check_positions(config: Any) -> None:
  if config.patch_sizes and (
      min(config.patch_sizes) < 1 or config.backbone or config.position not in (
          'learned', 'sincos', 'none') or config.position_at != 'stem'):
    raise ValueError(
        'patch_sizes need patches of the image, and positions that are added '
        f'to the stem: patch_sizes={config.patch_sizes}, '
        f'backbone={config.backbone}, position={config.position!r}, '
        f'position_at={config.position_at!r}.')
  if config.position_at != 'stem' and (
      config.position in ('none', 'relative')
      or (config.has_offset_bias and config.position_at == 'layers')):
    raise ValueError(
        f'position {config.position!r} adds nothing to the tokens, so '
        f'position_at cannot be {config.position_at!r}. Leave it out.')
  if config.has_offset_bias and config.axial:
    raise ValueError(f'position {config.position!r} excludes axial attention.')
  if config.rotary is not None and (config.axial or (
      config.num_heads and config.width and config.head_dim % 4)):
    raise ValueError(
        'Rotary positions need heads of a multiple of 4 channels, and '
        f'attention over the whole grid: num_heads={config.num_heads} for '
        f'width {config.width}, axial={config.axial}.')
  if config.rotary is not None and config.rotary.register_base and (
      math.isqrt(config.registers) ** 2 != config.registers):
    raise ValueError(
        'rotary.register_base needs a square number of registers, but there '
        f'are {config.registers}.')
  if config.rotates_cls and (
      config.num_prefix > config.has_cls or not config.has_cls
      or config.rotary.learned or config.position != 'none'):
    raise ValueError(
        'rotary.cls needs a class token without other tokens before the '
        "patches, and position 'none', without rotary.learned.")
  if config.differential and (
      config.rotary is not None or config.position.startswith('relative')
      or 'kv' in config.projections
      or (config.num_heads and config.head_dim % 2)):
    raise ValueError(
        'differential attention needs heads of an even number of channels, and '
        'excludes rotary and relative positions and num_kv_heads.')
  divisor = {'2d': 2, 'sincos': 4}.get(config.position, 1)
  if config.width % divisor:
    raise ValueError(
        f'position {config.position!r} needs a width divisible by {divisor}, '
        f'but it is {config.width}.')
