"""Checks of the settings of a Vision Transformer against each other."""

from collections.abc import Iterator
import itertools
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
  for problem in itertools.chain(
      _problems(config), _token_problems(config), _position_problems(config)):
    raise ValueError(problem)


def _problems(config: Any) -> Iterator[str]:
  for heads in (config.num_heads, config.pool_heads):
    if config.width and heads and config.width % heads:
      yield f'width {config.width} does not divide into {heads} heads.'
  learned = config.rotary is not None and config.rotary.learned
  if config.num_kv_heads and (
      config.num_heads % config.num_kv_heads
      or (learned and 'kv' in config.projections)):
    yield ('num_kv_heads must divide num_heads, without rotary.learned, but is '
           f'{config.num_kv_heads} for {config.num_heads} heads.')
  if config.attention == 'cudnn' and config.dtype == 'float32':
    yield ("attention 'cudnn' needs bfloat16, but dtype is 'float32'. Set "
           "dtype to 'bfloat16', or attention to 'plain'.")
  if config.paired and config.parallel:
    yield 'paired excludes parallel layers.'
  if config.post_norm and (config.parallel or config.layer_scale is not None):
    yield 'post_norm excludes parallel layers and layer_scale.'
  if config.differential and (
      config.rotary is not None or config.position.startswith('relative')
      or 'kv' in config.projections
      or (config.num_heads and config.head_dim % 2)):
    yield ('differential attention needs heads of an even number of channels, '
           'and excludes rotary and relative positions and num_kv_heads.')
  layers = config.decoder.layers if config.decoder else ()
  if layers and (config.axial or max(layers) > config.depth > 0):
    yield (f'decoder.layers is {layers}, but must be numbers from 1 to depth='
           f'{config.depth}, of layers without axial attention.')


def _token_problems(config: Any) -> Iterator[str]:
  if config.pooling.startswith('cls') and config.cls is False:
    yield (f'pooling {config.pooling!r} needs the class token, but cls is '
           "false. Set pooling to 'average' or 'attention', or leave cls out.")
  if config.axial and (config.has_cls or config.registers):
    yield ('Axial attention supports neither a class token nor registers. Set '
           "pooling to 'average' or 'attention', cls to false and registers to "
           '0.')
  if len({bool(config.merge), bool(config.merge_mlp_dim),
          bool(config.merge_dim)}) > 1 or (config.merge and (
              config.pooling != 'average' or config.pool_prefix)):
    yield ("merge needs merge_mlp_dim, merge_dim and pooling 'average' without "
           f'pool_prefix, but merge={config.merge}, merge_mlp_dim='
           f'{config.merge_mlp_dim}, merge_dim={config.merge_dim}, '
           f'pooling={config.pooling!r}, pool_prefix={config.pool_prefix}.')
  if config.distill_token and (
      config.pooling != 'cls' or config.pool_norm or config.representation_layer
      or config.projection or config.cosine_head):
    yield ("distill_token needs pooling 'cls', and a linear head without pool_"
           'norm, representation_layer, projection and cosine_head.')


def _position_problems(config: Any) -> Iterator[str]:
  rotary = config.rotary
  if config.patch_sizes and (
      min(config.patch_sizes) < 1 or config.backbone or config.position not in (
          'learned', 'sincos', 'none') or config.position_at != 'stem'):
    yield ('patch_sizes need patches of the image, and positions that are '
           f'added to the stem: patch_sizes={config.patch_sizes}, '
           f'backbone={config.backbone}, position={config.position!r}, '
           f'position_at={config.position_at!r}.')
  if config.position_at != 'stem' and (
      config.position in ('none', 'relative')
      or (config.has_offset_bias and config.position_at == 'layers')):
    yield (f'position {config.position!r} adds nothing to the tokens, so '
           f'position_at cannot be {config.position_at!r}. Leave it out.')
  if config.has_offset_bias and config.axial:
    yield f'position {config.position!r} excludes axial attention.'
  if rotary is not None and (config.axial or (
      config.num_heads and config.width and config.head_dim % 4)):
    yield ('Rotary positions need heads of a multiple of 4 channels, and '
           f'attention over the whole grid: num_heads={config.num_heads} for '
           f'width {config.width}, axial={config.axial}.')
  if rotary is not None and rotary.register_base and (
      math.isqrt(config.registers) ** 2 != config.registers):
    yield ('rotary.register_base needs a square number of registers, but there '
           f'are {config.registers}.')
  if config.rotates_cls and (
      config.num_prefix > config.has_cls or not config.has_cls
      or rotary.learned or config.position != 'none'):
    yield ('rotary.cls needs a class token without other tokens before the '
           "patches, and position 'none', without rotary.learned.")
  divisor = {'2d': 2, 'sincos': 4}.get(config.position, 1)
  if config.width % divisor:
    yield (f'position {config.position!r} needs a width divisible by {divisor},'
           f' but it is {config.width}.')
