"""Encoder of the backbones of today, scanned over layers."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax.extras.zoo import attention as attention_lib
from vit_jax.extras.zoo import backbone_config
from vit_jax.extras.zoo import backbone_layers
from vit_jax.models import layers
from vit_jax.models import vit

# Ends of the names of parameters that are computed in float32: norms, rotary
# frequencies, relative biases and what differential attention subtracts.
_EXACT = ('_norm', 'frequencies', 'relative', 'difference')


class Block(vit.Block):
  """Pre-norm Transformer layer: attention, then MLP, with residuals.

  With `post_norm`, a branch ends with its norm instead of starting with it.
  Parallel layers compute y = x + Attention(Norm(x)) + MLP(Norm(x)) with one
  norm (arXiv 2302.05442, section 2.1). Paired layers have the sum of two
  attentions, then that of two MLPs, each with a norm of its own.

  Layer scale multiplies the output of each branch by a learned factor per
  channel (arXiv 2103.17239), unless `folded` says that the kernels and biases
  of the branches' output projections contain it (`_fold_layer_scale`).
  """
  config: backbone_config.BackboneConfig
  grid: tuple[int, int]
  folded: bool = False

  @nn.compact
  def __call__(  # type: ignore[override]
      self,
      tokens: Float[Array, 'batch tokens width'],
      layer: Int[Array, ''],
      shared: Float[Array, '...'] | None,
  ) -> tuple[Float[Array, 'batch tokens width'], dict[str, jax.Array]]:
    c = self.config
    after_attention, weights = tokens, []
    for start in c.branches:
      normed = self._norm(f'{start}attention_norm', tokens, after=False)
      attended, found = self._attend(f'{start}attention', normed, shared, layer)
      attended = layers.Dropout(
          c.dropout, deterministic=not self.train)(attended)
      attended = self._norm(f'{start}attention_norm', attended, after=True)
      if c.layer_scale is not None and not self.folded:
        attended *= self._layer_scale(f'{start}attention_scale', attended.dtype)
      after_attention += self.drop_path(attended, layer)
      weights.append(found)
    after_mlp = after_attention = layers.saved(
        after_attention, 'after_attention')
    for start in c.branches:
      if not c.parallel:
        normed = self._norm(f'{start}mlp_norm', after_attention, after=False)
      mixed = backbone_layers.Mlp(c, self.train, name=f'{start}mlp')(normed)
      mixed = self._norm(f'{start}mlp_norm', mixed, after=True)
      if c.layer_scale is not None and c.layer_scale_mlp and not self.folded:
        mixed *= self._layer_scale(f'{start}mlp_scale', mixed.dtype)
      after_mlp += self.drop_path(mixed, layer)
    captured = {'after_attention': after_attention, 'after_mlp': after_mlp}
    if self.capture is True:
      captured['attention'] = jnp.concatenate(weights, axis=-3)
    return after_mlp, captured if self.capture else {}

  def _norm(self, name: str, tokens: jax.Array, *, after: bool) -> jax.Array:
    """Normalises tokens before or `after` a branch, see `post_norm`."""
    if self.config.post_norm != after:
      return tokens
    tokens = layers.saved(tokens, 'branch') if after else tokens
    return backbone_layers.norm(self.config, name)(tokens)

  def _attend(
      self, name: str, tokens: Float[Array, 'batch tokens width'], shared: Any,
      layer: Int[Array, ''],
  ) -> tuple[Float[Array, 'batch tokens width'], Any]:
    return attention_lib.SelfAttention(
        self.config, self.train, self.capture, self.grid, name=name)(
            tokens, shared, layer)

  def _layer_scale(
      self, name: str, dtype: jnp.dtype) -> Float[Array, 'width']:
    return self.param(
        name, nn.with_logical_partitioning(
            nn.initializers.constant(self.config.layer_scale), ('norm',)),
        (self.config.width,)).astype(dtype)


def _fold_layer_scale(params: Any) -> Any:
  """Multiplies output projections of branches by their layer scale.

  Otherwise the gradient of the scale needs the branch's output, which would
  have to be stored or its matrix product repeated.
  """
  if not isinstance(params, Mapping):
    return params
  folded = {name: _fold_layer_scale(value) for name, value in params.items()}
  for key in [key for key in folded if key.endswith('_scale')]:
    branch, scale = key.removesuffix('_scale'), folded.pop(key)
    # [layers, width] times [layers, ..., width].
    out = {name: leaf * jnp.expand_dims(scale, range(1, leaf.ndim - 1))
           for name, leaf in folded[branch]['out'].items()}
    folded[branch] = {**folded[branch], 'out': out}
  return folded


class Encoder(nn.Module):
  """`depth` blocks in one scan.

  As `vit.Encoder`; `attention` has twice the heads if layers are paired.
  """
  config: backbone_config.BackboneConfig
  train: bool
  capture: vit.Capture
  grid: tuple[int, int]

  @nn.compact
  def __call__(
      self,
      tokens: Float[Array, 'batch tokens width'],
      shared: Float[Array, '...'] | None,
  ) -> tuple[Float[Array, 'batch tokens width'], dict[str, Any]]:
    """Applies blocks, whose attention uses what is `shared`, if anything."""
    c = self.config
    kind, settings = self.block()
    blocks = layers.scan(kind, c, num_shared=1)
    folded = self.train and not self.is_initializing()
    if folded:
      blocks = nn.map_variables(blocks, 'params', lambda params: layers.cast(
          _fold_layer_scale(params), dtype=c.compute_dtype, exact=_EXACT))
    return blocks(*settings, folded, name='layers')(
        tokens, jnp.arange(c.depth), shared)

  def block(self) -> tuple[Any, tuple[Any, ...]]:
    """Returns the module of a layer, and its attributes."""
    return Block, (self.config, self.train, self.capture, self.grid)
