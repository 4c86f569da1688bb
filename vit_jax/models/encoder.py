"""The Transformer encoder: equations 2 and 3 of the paper, scanned over layers.

All layers share one compiled body: the parameters of a kind are stacked along
a leading axis of `depth`, whatever the settings. `unroll` and `remat` change
how the compiler walks over that axis, never what is computed or stored.
"""

from collections.abc import Callable, Mapping
import functools
from typing import Any, Literal

import einops
import flax.linen as nn
import jax
from jax import ad_checkpoint
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.models import attention as attention_lib
from vit_jax.models import embed
from vit_jax.models import per_example_random
from vit_jax.models import vit_config

# Results of a layer's products with parameters, as far as its gradient needs
# them, in the compute dtype. Attention weights are not among them, float32 and
# tokens^2 large, nor is anything of norms, GELU and dropout.
_PROJECTIONS = ('query', 'key', 'value', 'after_attention', 'hidden')
# What the backward pass finds saved; it computes the rest of a layer again.
REMAT_POLICIES: Mapping[str, Callable | None] = {
    'none': None,
    # All but attention and what costs next to nothing.
    'attention': jax.checkpoint_policies.save_only_these_names(*_PROJECTIONS),
    # Results of matrix products with parameters; not the attention weights.
    'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    # Only each layer's input.
    'full': jax.checkpoint_policies.nothing_saveable,
}

_NORM = functools.partial(nn.with_logical_partitioning, names=('norm',))


def layer_norm(
    config: vit_config.ViTConfig, name: str, *, axis: str = 'norm',
) -> nn.LayerNorm | nn.RMSNorm:
  """Norm whose statistics are float32 whatever the compute dtype.

  Args:
    config: says its kind and its epsilon.
    name: of the module.
    axis: that it is over, as its parameters name it.
  """
  options: dict[str, Any] = {
      'epsilon': config.layer_norm_epsilon, 'dtype': config.compute_dtype,
      'scale_init': nn.with_logical_partitioning(
          nn.initializers.ones, (axis,)), 'name': name}
  if config.norm == 'rms':
    return nn.RMSNorm(**options)
  return nn.LayerNorm(
      **options, bias_init=nn.with_logical_partitioning(
          nn.initializers.zeros, (axis,)))


class Dropout(nn.Module):
  """Zeroes elements at a rate, and makes the others larger to match.

  As `nn.Dropout`, whose random numbers it draws, but what is kept is decided
  once, apart from its use: a compiler that fuses the generator into each
  product beside it computes it several times over, and takes twice as long.
  """
  rate: float
  deterministic: bool

  @nn.compact
  def __call__(self, inputs: Float[Array, '...']) -> Float[Array, '...']:
    if self.rate == 0 or self.deterministic:
      return inputs
    kept = jax.lax.optimization_barrier(per_example_random.for_images(
        lambda key, batch: jax.random.bernoulli(
            key, 1 - self.rate, (batch, *inputs.shape[1:])),
        self.make_rng('dropout'), inputs))
    return jnp.where(kept, inputs / (1 - self.rate), 0)


def _saveable(
    array: Float[Array, 'batch tokens heads head_dim'], name: str,
) -> Float[Array, 'batch tokens heads head_dim']:
  """Names what a policy may save, in a shape that wastes no memory.

  A TPU pads the last axis to 128, which is twice the usual length of a head.
  """
  flat = einops.rearrange(array, 'b t n h -> b t (n h)')
  return ad_checkpoint.checkpoint_name(flat, name).reshape(array.shape)


class SelfAttention(nn.Module):
  """Multi-head self-attention; queries, keys and values in one product.

  A fused kernel has no weights to return, and takes neither dropout nor bias.
  """
  config: vit_config.ViTConfig
  train: bool
  capture: bool

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'],
  ) -> tuple[Float[Array, 'batch tokens width'],
             Float[Array, 'batch heads tokens tokens'] | None]:
    c = self.config
    # Three Xavier matrices side by side: the fan-out is that of each alone.
    xavier = nn.initializers.variance_scaling(
        1.0, 'fan_avg', 'uniform', in_axis=0, out_axis=(2, 3), batch_axis=1)
    kernel = self.param(
        'qkv_kernel',
        nn.with_logical_partitioning(
            xavier, ('width', None, 'heads', 'head_dim')),
        (c.width, 3, c.num_heads, c.head_dim))
    qkv = jnp.einsum(
        'btw,wcnh->btcnh', tokens, kernel.astype(c.compute_dtype))
    if c.qkv_bias:
      bias = self.param(
          'qkv_bias',
          nn.with_logical_partitioning(
              nn.initializers.zeros, (None, 'heads', 'head_dim')),
          (3, c.num_heads, c.head_dim))
      qkv += bias.astype(c.compute_dtype)
    query, key, value = (
        _saveable(qkv[:, :, i], name)
        for i, name in enumerate(('query', 'key', 'value')))
    if c.qk_norm:
      query = layer_norm(c, 'query_norm', axis='head_dim')(query)
      key = layer_norm(c, 'key_norm', axis='head_dim')(key)
    bias = self._relative(query) if c.position == 'relative' else None
    drops = self.train and c.attention_dropout > 0
    if c.attention == 'cudnn' and bias is None and not (self.capture or drops):
      values, weights = attention_lib.fused_attention(query, key, value), None
    else:
      drop = Dropout(c.attention_dropout, deterministic=not self.train)
      values, weights = attention_lib.dot_product_attention(
          query, key, value, bias=bias, drop=drop)
    out = nn.DenseGeneral(
        c.width, axis=(-2, -1), dtype=c.compute_dtype,
        kernel_init=nn.with_logical_partitioning(
            nn.initializers.xavier_uniform(), ('heads', 'head_dim', 'width')),
        bias_init=_NORM(nn.initializers.zeros), name='out')
    return out(values), weights

  def _relative(
      self, query: Float[Array, 'batch tokens heads head_dim'],
  ) -> Float[Array, 'batch heads tokens tokens']:
    """Logits of attention to distances p_q - p_k (appendix D.4)."""
    c, length = self.config, query.shape[1]
    distances = self.param(
        'distances',
        nn.with_logical_partitioning(
            nn.initializers.normal(0.02), (None, 'heads', 'head_dim')),
        (2 * length - 1, c.num_heads, c.head_dim))
    logits = jnp.einsum(
        'bqnh,dnh->bnqd', query * c.head_dim ** -0.5,
        distances.astype(c.compute_dtype),
        preferred_element_type=jnp.float32)
    # Of the distances -(length - 1) ... length - 1, the one to each key.
    place = np.arange(length)
    index = place[:, None] - place[None, :] + length - 1
    return jnp.take_along_axis(logits, index[None, None], axis=-1)


class Mlp(nn.Module):
  """Two dense layers with a GELU between (equation 3)."""
  config: vit_config.ViTConfig
  train: bool

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'],
  ) -> Float[Array, 'batch tokens width']:
    c = self.config
    dense = functools.partial(nn.Dense, dtype=c.compute_dtype)
    bias = nn.initializers.normal(1e-6)
    hidden = dense(
        c.mlp_dim,
        kernel_init=nn.with_logical_partitioning(
            nn.initializers.xavier_uniform(), ('width', 'mlp')),
        bias_init=nn.with_logical_partitioning(bias, ('mlp',)),
        name='hidden')(tokens)
    hidden = ad_checkpoint.checkpoint_name(hidden, 'hidden')
    hidden = jax.nn.gelu(hidden, approximate=c.gelu == 'tanh')
    hidden = Dropout(c.dropout, deterministic=not self.train)(hidden)
    out = dense(
        c.width,
        kernel_init=nn.with_logical_partitioning(
            nn.initializers.xavier_uniform(), ('mlp', 'width')),
        bias_init=_NORM(bias), name='out')(hidden)
    return Dropout(c.dropout, deterministic=not self.train)(out)


class Block(nn.Module):
  """One layer: attention, then MLP, each normed before and added after.

  Parallel ones share a norm, and both see the tokens as they came: y = x +
  Attention(Norm(x)) + MLP(Norm(x)) (arXiv 2302.05442, section 2.1).

  `along` says which tokens of a grid see each other: all of them, or those of
  a row or of a column.
  """
  config: vit_config.ViTConfig
  train: bool
  capture: bool
  grid: tuple[int, int]
  along: Literal['all', 'row', 'column'] = 'all'

  @nn.compact
  def __call__(
      self,
      tokens: Float[Array, 'batch tokens width'],
      drop_path: Float[Array, ''],
      positions: Float[Array, 'embeddings width'] | None,
  ) -> tuple[Float[Array, 'batch tokens width'], dict[str, jax.Array]]:
    c = self.config
    if c.position_at == 'layers' and self.along != 'column':
      positions = embed.positions(self.param, c, self.grid)
    if positions is not None:
      tokens = embed.add_positions(
          tokens, positions, num_patches=self.grid[0] * self.grid[1])
    normed = layer_norm(c, 'attention_norm')(tokens)
    attended, weights = self._attend(normed)
    attended = Dropout(c.dropout, deterministic=not self.train)(attended)
    attended = self._scale('attention_scale', attended)
    after_attention = ad_checkpoint.checkpoint_name(
        tokens + self._drop_path(attended, drop_path), 'after_attention')
    if not c.parallel:
      normed = layer_norm(c, 'mlp_norm')(after_attention)
    mixed = Mlp(c, self.train, name='mlp')(normed)
    mixed = self._scale('mlp_scale', mixed)
    after_mlp = after_attention + self._drop_path(mixed, drop_path)
    if not self.capture:
      return after_mlp, {}
    assert weights is not None
    return after_mlp, {'attention': weights, 'after_attention': after_attention,
                       'after_mlp': after_mlp}

  def _attend(
      self, tokens: Float[Array, 'batch tokens width'],
  ) -> tuple[Float[Array, 'batch tokens width'], Float[Array, '...'] | None]:
    attention = SelfAttention(
        self.config, self.train, self.capture, name='attention')
    if self.along == 'all':
      return attention(tokens)
    rows, columns = self.grid
    apart, together = {
        'row': ('b (r c) d -> (b r) c d', '(b r) c d -> b (r c) d'),
        'column': ('b (r c) d -> (b c) r d', '(b c) r d -> b (r c) d'),
    }[self.along]
    lines = einops.rearrange(tokens, apart, r=rows, c=columns)
    attended, weights = attention(lines)
    if weights is not None:
      weights = weights.reshape(tokens.shape[0], -1, *weights.shape[1:])
    return einops.rearrange(attended, together, r=rows, c=columns), weights

  def _scale(
      self, name: str, branch: Float[Array, 'batch tokens width'],
  ) -> Float[Array, 'batch tokens width']:
    """Layer scale: a learned factor for each channel (arXiv 2103.17239)."""
    c = self.config
    if c.layer_scale is None:
      return branch
    scale = self.param(
        name, _NORM(nn.initializers.constant(c.layer_scale)), (c.width,))
    return branch * scale.astype(branch.dtype)

  def _drop_path(
      self, branch: Float[Array, 'batch tokens width'],
      rate: Float[Array, ''],
  ) -> Float[Array, 'batch tokens width']:
    """Stochastic depth: drops the branch for whole images (1603.09382)."""
    if not self.train or not self.config.stochastic_depth:
      return branch
    keep = per_example_random.for_images(
        lambda key, batch, share: jax.random.bernoulli(
            key, share, (batch, 1, 1)),
        self.make_rng('dropout'), branch, 1 - rate)
    return jnp.where(keep, branch / (1 - rate).astype(branch.dtype), 0)


class AxialBlock(nn.Module):
  """Attention within rows, then within columns, an MLP after each (D.6)."""
  config: vit_config.ViTConfig
  train: bool
  capture: bool
  grid: tuple[int, int]

  @nn.compact
  def __call__(
      self,
      tokens: Float[Array, 'batch tokens width'],
      drop_path: Float[Array, ''],
      positions: Float[Array, 'embeddings width'] | None,
  ) -> tuple[Float[Array, 'batch tokens width'], dict[str, Any]]:
    settings = (self.config, self.train, self.capture, self.grid)
    tokens, rows = Block(*settings, along='row', name='row')(
        tokens, drop_path, positions)
    tokens, columns = Block(*settings, along='column', name='column')(
        tokens, drop_path, None)
    return tokens, {'row': rows, 'column': columns} if self.capture else {}


def _in_dtype(params: Any, *, dtype: jnp.dtype) -> Any:
  """Returns all layers' parameters in the dtype that they are used in.

  So the scan stacks their gradients in that dtype too, in which the products
  give them: in float32 L/16's would take 0.6 GiB more, and as much again to
  read and write. Norms compute in float32. Without gradients there is nothing
  to gain, and on a CPU the copy of all layers costs a tenth of the time.
  """

  def convert(path: Any, leaf: jax.Array) -> jax.Array:
    is_norm = any(getattr(key, 'key', '').endswith('_norm') for key in path)
    return leaf if is_norm else leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(convert, params)


class Encoder(nn.Module):
  """`depth` blocks under one scan.

  Returns the last block's tokens, not yet normed, and with `capture` the
  intermediates of every block, stacked: `attention` [depth, batch, heads,
  tokens, tokens], `after_attention` and `after_mlp` [depth, batch, tokens,
  width]. Of axial blocks, these are under `row` and `column`, and attention is
  [depth, batch, rows, heads, columns, columns] and the like.
  """
  config: vit_config.ViTConfig
  train: bool
  capture: bool
  grid: tuple[int, int]

  @nn.compact
  def __call__(
      self,
      tokens: Float[Array, 'batch tokens width'],
      positions: Float[Array, 'embeddings width'] | None,
  ) -> tuple[Float[Array, 'batch tokens width'], dict[str, Any]]:
    """Applies the blocks, each to the tokens with `positions` added if any."""
    c = self.config
    block: Any = AxialBlock if c.axial else Block
    if c.remat != 'none':
      block = nn.remat(
          block, prevent_cse=False, policy=REMAT_POLICIES[c.remat])
    layers = nn.scan(
        block, variable_axes={'params': 0, 'intermediates': 0},
        split_rngs={'params': True, 'dropout': True},
        in_axes=(0, nn.broadcast), length=c.depth,
        unroll=min(c.unroll, c.depth),
        metadata_params={nn.PARTITION_NAME: 'layers'})
    if self.train and not self.is_initializing():
      layers = nn.map_variables(
          layers, 'params',
          functools.partial(_in_dtype, dtype=c.compute_dtype))
    # Linear from 0 at the first layer to the full rate at the last.
    rates = jnp.linspace(0.0, c.stochastic_depth, c.depth)
    return layers(c, self.train, self.capture, self.grid, name='layers')(
        tokens, rates, positions)
