"""Transformer encoder, scanned over layers (equations 2 and 3 of the paper).

All layers share one compiled body, and their parameters are stacked along a
leading axis of length `depth`. `unroll` and `remat` change neither results nor
parameters.
"""

from collections.abc import Callable, Mapping
import typing
from typing import Any, Literal

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax.models import attention as attention_lib
from vit_jax.models import embed
from vit_jax.models import layers
from vit_jax.models import vit_config

# Intermediates that are saved for the backward pass; others are recomputed.
REMAT_POLICIES: Mapping[str, Callable | None] = {
    'none': None,
    # Saves everything except attention and cheap elementwise operations. Sums
    # are norm statistics: small, but each is a pass over all tokens.
    'attention': jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.save_only_these_names(
            *typing.get_args(layers.Saved)),
        lambda primitive, *_, **__: primitive is jax.lax.reduce_sum_p),
    # Saves outputs of matrix products with parameters.
    'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    # Saves only the input of each layer.
    'full': jax.checkpoint_policies.nothing_saveable,
}


class Block(nn.Module):
  """Pre-norm Transformer layer: attention, then MLP, with residuals.

  With `post_norm`, a branch ends with its norm instead of starting with it.
  Parallel layers compute y = x + Attention(Norm(x)) + MLP(Norm(x)) with one
  norm (arXiv 2302.05442, section 2.1). Paired layers have the sum of two
  attentions, then that of two MLPs, each with a norm of its own.

  Layer scale multiplies the output of each branch by a learned factor per
  channel (arXiv 2103.17239), unless `folded` says that the kernels and biases
  of the branches' output projections contain it (`_fold_layer_scale`).

  `within` restricts attention to the tokens of a row or column.
  """
  config: vit_config.ViTConfig
  train: bool
  capture: bool
  grid: tuple[int, int]
  folded: bool = False
  within: Literal['grid', 'row', 'column'] = 'grid'

  @nn.compact
  def __call__(
      self,
      tokens: Float[Array, 'batch tokens width'],
      layer: Int[Array, ''],
      positions: Float[Array, '...'] | None,
  ) -> tuple[Float[Array, 'batch tokens width'], dict[str, jax.Array]]:
    c = self.config
    if c.position_at == 'layers' and self.within != 'column':
      positions = embed.position_embeddings(self.param, c, self.grid)
    shared = positions if c.has_offset_bias or c.rotates_cls else None
    if positions is not None and shared is None:
      tokens = embed.add_positions(
          tokens, positions, num_patches=self.grid[0] * self.grid[1])
    after_attention, weights = tokens, []
    for start in c.branches:
      normed = self._norm(f'{start}attention_norm', tokens, after=False)
      attended, found = self._attend(f'{start}attention', normed, shared, layer)
      attended = layers.Dropout(
          c.dropout, deterministic=not self.train)(attended)
      attended = self._norm(f'{start}attention_norm', attended, after=True)
      if c.layer_scale is not None and not self.folded:
        attended *= self._layer_scale(f'{start}attention_scale', attended.dtype)
      after_attention += self._drop_path(attended, layer)
      weights.append(found)
    after_mlp = after_attention = layers.saved(
        after_attention, 'after_attention')
    for start in c.branches:
      if not c.parallel:
        normed = self._norm(f'{start}mlp_norm', after_attention, after=False)
      mixed = layers.Mlp(c, self.train, name=f'{start}mlp')(normed)
      mixed = self._norm(f'{start}mlp_norm', mixed, after=True)
      if c.layer_scale is not None and c.layer_scale_mlp and not self.folded:
        mixed *= self._layer_scale(f'{start}mlp_scale', mixed.dtype)
      after_mlp += self._drop_path(mixed, layer)
    if not self.capture:
      wanted = c.decoder is not None and c.decoder.layers
      return after_mlp, {'after_mlp': after_mlp} if wanted else {}
    return after_mlp, {'attention': jnp.concatenate(weights, axis=-3),
                       'after_attention': after_attention,
                       'after_mlp': after_mlp}

  def _norm(self, name: str, tokens: jax.Array, *, after: bool) -> jax.Array:
    """Normalises tokens before or `after` a branch, see `post_norm`."""
    if self.config.post_norm != after:
      return tokens
    tokens = layers.saved(tokens, 'branch') if after else tokens
    return layers.layer_norm(self.config, name)(tokens)

  def _attend(
      self, name: str, tokens: Float[Array, 'batch tokens width'], shared: Any,
      layer: Int[Array, ''],
  ) -> tuple[Float[Array, 'batch tokens width'], Any]:
    attention = attention_lib.SelfAttention(
        self.config, self.train, self.capture, self.grid, name=name)
    if self.within == 'grid':
      return attention(tokens, shared, layer)
    rows, columns = self.grid
    split, merge = {
        'row': ('b (r c) d -> (b r) c d', '(b r) c d -> b (r c) d'),
        'column': ('b (r c) d -> (b c) r d', '(b c) r d -> b (r c) d'),
    }[self.within]
    lines = einops.rearrange(tokens, split, r=rows, c=columns)
    attended, weights = attention(lines, None, layer)
    if weights is not None:
      weights = weights.reshape(tokens.shape[0], -1, *weights.shape[1:])
    return einops.rearrange(attended, merge, r=rows, c=columns), weights

  def _layer_scale(
      self, name: str, dtype: jnp.dtype) -> Float[Array, 'width']:
    return self.param(
        name, nn.with_logical_partitioning(
            nn.initializers.constant(self.config.layer_scale), ('norm',)),
        (self.config.width,)).astype(dtype)

  def _drop_path(
      self, branch: Float[Array, 'batch tokens width'],
      layer: Int[Array, ''],
  ) -> Float[Array, 'batch tokens width']:
    """Stochastic depth per image (arXiv 1603.09382)."""
    c = self.config
    if not self.train or not c.stochastic_depth:
      return branch
    rate = jnp.linspace(0.0, c.stochastic_depth, c.depth)[layer]
    keep = layers.sample_per_example(
        lambda key, batch, probability: jax.random.bernoulli(
            key, probability, (batch, 1, 1)),
        self.make_rng('dropout'), branch, 1 - rate)
    return jnp.where(keep, branch / (1 - rate).astype(branch.dtype), 0)


class AxialBlock(nn.Module):
  """Attention within rows, then columns, each with an MLP (appendix D.6)."""
  config: vit_config.ViTConfig
  train: bool
  capture: bool
  grid: tuple[int, int]
  folded: bool = False

  @nn.compact
  def __call__(
      self,
      tokens: Float[Array, 'batch tokens width'],
      layer: Int[Array, ''],
      positions: Float[Array, 'embeddings width'] | None,
  ) -> tuple[Float[Array, 'batch tokens width'], dict[str, Any]]:
    settings = (
        self.config, self.train, self.capture, self.grid, self.folded)
    tokens, rows = Block(*settings, within='row', name='row')(
        tokens, layer, positions)
    tokens, columns = Block(*settings, within='column', name='column')(
        tokens, layer, None)
    return tokens, {'row': rows, 'column': columns} if self.capture else {}


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


def _cast_params(params: Any, *, dtype: jnp.dtype) -> Any:
  """Casts the parameters of all layers to the compute dtype.

  Norms, rotary frequencies, relative biases and what differential attention
  subtracts, which are computed in float32, stay as they are.

  The scan then stacks the gradients in that dtype: for L/16 in bfloat16 this
  saves 0.6 GiB of memory and as much traffic. Without gradients it saves
  nothing, and on CPUs the copy takes a tenth of the time.
  """

  def convert(path: Any, leaf: jax.Array) -> jax.Array:
    exact = any(getattr(key, 'key', '').endswith(
        ('_norm', 'frequencies', 'relative', 'difference')) for key in path)
    return leaf if exact else leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(convert, params)


class Encoder(nn.Module):
  """`depth` blocks in one scan.

  Returns the tokens of the last block before the final norm and, with
  `capture`, the stacked intermediates of all blocks: `attention` [depth, batch,
  heads, tokens, tokens], with twice the heads if they are paired;
  `after_attention` and `after_mlp` [depth, batch, tokens, width]. Axial blocks
  have them under `row` and `column`, with attention [depth, batch, rows, heads,
  columns, columns] and [depth, batch, columns, heads, rows, rows]. If the
  decoder uses `layers`, `after_mlp` is always returned.

  `parallel.sharding.keep_batch_split` shards activations along the batch,
  between modules; the model itself has no such constraints.
  """
  config: vit_config.ViTConfig
  train: bool
  capture: bool
  grid: tuple[int, int]

  @nn.compact
  def __call__(
      self,
      tokens: Float[Array, 'batch tokens width'],
      positions: Float[Array, '...'] | None,
  ) -> tuple[Float[Array, 'batch tokens width'], dict[str, Any]]:
    """Applies blocks that add `positions`, or use them in attention."""
    c = self.config
    block: Any = AxialBlock if c.axial else Block
    if c.remat != 'none':
      block = nn.remat(
          block, prevent_cse=False, policy=REMAT_POLICIES[c.remat])
    blocks = nn.scan(
        block, variable_axes={'params': 0, 'intermediates': 0},
        split_rngs={'params': True, 'dropout': True},
        in_axes=(0, nn.broadcast), length=c.depth, unroll=c.unroll,
        metadata_params={nn.PARTITION_NAME: 'layers'})
    folded = self.train and not self.is_initializing()
    if folded:
      blocks = nn.map_variables(blocks, 'params', lambda params: _cast_params(
          _fold_layer_scale(params), dtype=c.compute_dtype))
    return blocks(
        c, self.train, self.capture, self.grid, folded, name='layers')(
            tokens, jnp.arange(c.depth), positions)
