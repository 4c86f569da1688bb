"""Checks of the settings of a backbone against each other."""

from collections.abc import Iterator
import itertools
import math
from typing import Any

from vit_jax import fields
from vit_jax.exceptions import UserError


def check(config: Any) -> None:
  """Raises a UserError for settings of a backbone that exclude others."""
  fields.check_range(
      config, 'num_kv_heads', 'registers', 'pool_heads', 'pool_mlp_dim',
      'projection')
  fields.check_range(config, 'position_mlp_dim', low=1)
  for problem in itertools.chain(
      _problems(config), _token_problems(config), _position_problems(config)):
    raise UserError(problem)


def _problems(config: Any) -> Iterator[str]:
  if config.pool_heads and config.width % config.pool_heads:
    yield (f'width {config.width} does not divide into {config.pool_heads} '
           'heads (pool_heads).')
  learned = config.rotary is not None and config.rotary.learned
  if config.num_kv_heads and (
      config.num_heads % config.num_kv_heads
      or (learned and 'kv' in config.projections)):
    yield ('num_kv_heads must divide num_heads, without rotary.learned, but is '
           f'{config.num_kv_heads} for {config.num_heads} heads.')
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


def _token_problems(config: Any) -> Iterator[str]:
  if config.distill_token and (
      config.pooling != 'cls' or config.pool_norm or config.representation_layer
      or config.projection or config.cosine_head):
    yield ("distill_token needs pooling 'cls', and a linear head without pool_"
           'norm, representation_layer, projection and cosine_head.')


def _position_problems(config: Any) -> Iterator[str]:
  rotary = config.rotary
  if config.position_at != 'stem' and not config.has_offset_bias:
    yield (f'position {config.position!r} has no relative biases that layers '
           f'could share: position_at={config.position_at!r}. Leave it out.')
  if rotary is not None and (
      config.num_heads and config.width and config.head_dim % 4):
    yield ('Rotary positions need heads of a multiple of 4 channels: num_heads='
           f'{config.num_heads} for width {config.width}.')
  if rotary is not None and rotary.register_base and (
      math.isqrt(config.registers) ** 2 != config.registers):
    yield ('rotary.register_base needs a square number of registers, but there '
           f'are {config.registers}.')
