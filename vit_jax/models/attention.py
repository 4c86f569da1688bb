"""Self-attention in plain JAX, or by fused kernels of cuDNN or for TPUs.

Logits have the dtype of the queries, because an array that is quadratic in
tokens causes most of the memory traffic; the softmax is computed in float32.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax.models import layers
from vit_jax.models import relative
from vit_jax.models import rotary as rotary_lib
from vit_jax.models import splash
from vit_jax.models import vit_config


def repeat_heads(
    array: Float[Array, 'batch keys groups head_dim'], num_heads: int,
) -> Float[Array, 'batch keys heads head_dim']:
  """Repeats each head of keys or values for its group of query heads.

  Grouped-query attention, arXiv 2305.13245, section 2.2. `fused_attention`
  needs no repetition.
  """
  repeats = num_heads // array.shape[2]
  return array if repeats == 1 else jnp.repeat(array, repeats, axis=2)


def dot_product_attention(
    query: Float[Array, 'batch queries heads head_dim'],
    key: Float[Array, 'batch keys heads head_dim'],
    value: Float[Array, 'batch keys heads channels'],
    *,
    bias: Float[Array, '#batch heads queries keys'] | None = None,
    drop: Callable[[jax.Array], jax.Array] = lambda weights: weights,
) -> tuple[Float[Array, 'batch queries heads channels'],
           Float[Array, 'batch heads queries keys']]:
  """Attention that keeps its weights (appendix A, equations 6 and 7).

  Args:
    query: projected queries.
    key: projected keys.
    value: projected values.
    bias: float32, added to the logits.
    drop: dropout of the attention weights.

  Returns:
    The weighted values, and the float32 weights before dropout.
  """
  logits = _logits(query, key)
  if bias is not None:
    logits += bias
  weights = jax.nn.softmax(logits, axis=-1)
  values = jnp.einsum(
      'bnqk,bknh->bnqh', drop(weights).astype(value.dtype), value)
  return einops.rearrange(values, 'b n q h -> b q n h'), weights


@jax.custom_vjp
def recomputed_attention(
    query: Float[Array, 'batch queries heads head_dim'],
    key: Float[Array, 'batch keys heads head_dim'],
    value: Float[Array, 'batch keys heads channels'],
) -> Float[Array, 'batch queries heads channels']:
  """Attention whose backward pass recomputes the weights.

  It keeps the logarithm of each query's sum of exponentials, as FlashAttention
  does (arXiv 2205.14135, appendix B), so that one matrix product gives the
  weights. For L/16 on a TPU v4, this moves a sixth less memory per step than
  the derivative of `dot_product_attention`.
  """
  return _forward(query, key, value)[0]


def _forward(
    query: jax.Array, key: jax.Array, value: jax.Array,
) -> tuple[jax.Array, Any]:
  logits = _logits(query, key)
  highest = logits.max(axis=-1, keepdims=True)
  exponentials = jnp.exp(logits - highest)
  sums = exponentials.sum(axis=-1, keepdims=True)
  values = jnp.einsum(
      'bnqk,bknh->bnqh', (exponentials / sums).astype(value.dtype), value)
  values = layers.saved(
      einops.rearrange(values, 'b n q h -> b q n h'), 'attended')
  log_sums = layers.saved(
      jnp.squeeze(highest + jnp.log(sums), -1), 'log_sums')
  return values, (query, key, value, values, log_sums)


def _backward(
    saved: Any, gradient: Float[Array, 'batch queries heads channels'],
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Gradients of query, key and value (arXiv 2205.14135, appendix B.4)."""
  query, key, value, values, log_sums = saved
  weights = jnp.exp(_logits(query, key) - log_sums[..., None])
  from_weights = jnp.einsum('bqnh,bknh->bnqk', gradient, value,
                            preferred_element_type=jnp.float32)
  from_sums = jnp.einsum('bqnh,bqnh->bnq', gradient, values,
                         preferred_element_type=jnp.float32)
  from_logits = (weights * (from_weights - from_sums[..., None])).astype(
      query.dtype)
  scale = query.shape[-1] ** -0.5
  return (
      jnp.einsum('bnqk,bknh->bqnh', from_logits, key) * scale,
      jnp.einsum('bnqk,bqnh->bknh', from_logits, query * scale),
      jnp.einsum('bnqk,bqnh->bknh', weights.astype(value.dtype), gradient))


recomputed_attention.defvjp(_forward, _backward)


def _logits(
    query: Float[Array, 'batch queries heads head_dim'],
    key: Float[Array, 'batch keys heads head_dim'],
) -> Float[Array, 'batch heads queries keys']:
  """Returns float32 logits, rounded to the dtype of the queries."""
  logits = jnp.einsum(
      'bqnh,bknh->bnqk', query * query.shape[-1] ** -0.5, key)
  return logits.astype(jnp.float32)


def fused_attention(
    query: Float[Array, 'batch tokens heads head_dim'],
    key: Float[Array, 'batch tokens groups head_dim'],
    value: Float[Array, 'batch tokens groups head_dim'],
    *, implementation: Any = 'cudnn',
) -> Float[Array, 'batch tokens heads head_dim']:
  """Attention in one kernel that keeps no attention weights in memory.

  Raises:
    RuntimeError: without cuDNN.
  """
  tokens = query.shape[1]
  if not tokens % 2:
    return jax.nn.dot_product_attention(
        query, key, value, implementation=implementation)
  # JAX cannot train with an odd number of tokens: pad by one and mask it.
  padded = [jnp.pad(array, ((0, 0), (0, 1), (0, 0), (0, 0)))
            for array in (query, key, value)]
  # The lengths depend on the queries so that `jax.vmap` batches them, too: the
  # kernel needs one per image.
  lengths = jnp.where(query[:, 0, 0, 0] == 0, tokens, tokens).astype(jnp.int32)
  return jax.nn.dot_product_attention(
      *padded, query_seq_lengths=lengths, key_value_seq_lengths=lengths,
      implementation=implementation)[:, :tokens]


class SelfAttention(nn.Module):
  """Multi-head self-attention with one projection for q, k and v.

  Fused kernels return no weights and support neither dropout nor bias.
  """
  config: vit_config.ViTConfig
  train: bool
  capture: bool
  grid: tuple[int, int]

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'],
      shared: Float[Array, '...'] | None,
      layer: Int[Array, ''],
  ) -> tuple[Float[Array, 'batch tokens width'],
             Float[Array, 'batch heads tokens tokens'] | None]:
    """Applies attention.

    `shared`: relative bias [1, heads, tokens, tokens], or angles of the class
    token [1, head_dim / 2], that all layers use.
    """
    c = self.config
    # Three products: slices of a joint result would be copied.
    names: tuple[layers.Saved, ...] = ('query', 'key', 'value')
    query, key, value = (
        layers.saved(jnp.einsum('btw,wnh->btnh', tokens, kernel) + bias, name)
        for name, (kernel, bias) in zip(names, self._projections()))
    if c.differential:
      query, key = (einops.rearrange(array, 'b t n (i h) -> b t (n i) h', i=2)
                    for array in (query, key))
    if c.qk_norm:
      query = layers.layer_norm(c, 'query_norm', axis='head_dim')(query)
      key = layers.layer_norm(c, 'key_norm', axis='head_dim')(key)
    if c.rotary is not None:
      query, key = self._rotate(c.rotary, shared, query, key)
    bias = None
    if c.position == 'relative':
      bias = relative.distance_bias(self.param, query)
    elif c.has_offset_bias:
      bias = shared if c.position_at == 'shared' else (
          relative.RelativeBias(c, self.grid, name='relative')())
    drops = self.train and c.attention_dropout > 0
    needs_weights = bias is not None or self.capture or drops
    weights = None
    kernel = 'plain' if needs_weights or c.differential else c.attention
    if kernel == 'auto':
      long = tokens.shape[1] >= splash.MIN_TOKENS
      kernel = 'splash' if long else 'plain'
    if kernel == 'plain':
      key, value = (repeat_heads(array, query.shape[2])
                    for array in (key, value))
    if kernel == 'cudnn':
      values = fused_attention(query, key, value)
    elif kernel == 'splash':
      values = splash.SplashAttention(name='splash')(query, key, value)
    elif c.remat == 'attention' and not needs_weights:
      values = recomputed_attention(query, key, value)
    else:
      drop = layers.Dropout(c.attention_dropout, deterministic=not self.train)
      values, weights = dot_product_attention(
          query, key, value, bias=bias, drop=drop)
    if c.differential:
      values, weights = Difference(c, name='difference')(
          values, weights, layer)
    if c.inner_norm == 'both':
      merged = einops.rearrange(values, 'b t n h -> b t (n h)')
      values = layers.layer_norm(c, 'inner_norm')(merged).reshape(values.shape)
    out = layers.dense(
        c.width, ('heads', 'head_dim', 'width'), 'out', dtype=c.compute_dtype,
        bias=nn.initializers.zeros if c.proj_bias else None)
    return out(values), weights

  def _projections(self) -> list[tuple[jax.Array, Any]]:
    """Returns kernel [width, heads, head_dim] and bias of q, k and v.

    Fewer heads of keys and values have an array of their own.
    """
    c = self.config
    # Xavier for each matrix, not for their concatenation.
    xavier = nn.initializers.variance_scaling(
        1.0, 'fan_avg', 'uniform', in_axis=0, out_axis=(2, 3), batch_axis=1)
    kernels: list[jax.Array] = []
    biases: list[Any] = []
    for name, heads in c.projections.items():
      kernel = self.param(
          f'{name}_kernel',
          nn.with_logical_partitioning(
              xavier, ('width', None, 'heads', 'head_dim')),
          (c.width, len(name), heads, c.head_dim))
      kernels += [kernel[:, i].astype(c.compute_dtype)
                  for i in range(len(name))]
      if c.qkv_bias:
        biased = name if c.key_bias else name.replace('k', '')
        bias = self.param(
            f'{biased}_bias',
            nn.with_logical_partitioning(
                nn.initializers.zeros, (None, 'heads', 'head_dim')),
            (len(biased), heads, c.head_dim)).astype(c.compute_dtype)
        biases += [bias[biased.index(letter)] if letter in biased else 0
                   for letter in name]
    return list(zip(kernels, biases or (0, 0, 0)))

  def _rotate(
      self, config: rotary_lib.RotaryConfig, of_cls: jax.Array | None,
      *arrays: jax.Array,
  ) -> list[jax.Array]:
    """Rotates the channels of queries and keys (see `rotary`)."""
    c, learned = self.config, None
    if config.learned:
      init = functools.partial(rotary_lib.random_frequencies, config=config)
      learned = self.param(
          'frequencies',
          nn.with_logical_partitioning(init, (None, 'heads', 'head_dim')),
          (2, c.num_heads, c.head_dim // 2))
    angles = rotary_lib.angles(
        config, self.grid, c.head_dim, learned, c.registers)
    if config.cls and of_cls is not None:
      angles = jnp.concatenate([of_cls[:, None], angles])
    return [rotary_lib.rotate(array, angles, halves=config.halves)
            for array in arrays]


class Difference(nn.Module):
  """Difference of two attentions of each head (arXiv 2410.05258, section 2).

  Each half of the queries and keys of a head attends on its own. The second is
  multiplied by lambda (equation 2) and subtracted from the first (equation 1);
  the difference is normalised (equation 3).
  """
  config: vit_config.ViTConfig

  @nn.compact
  def __call__(
      self, values: Float[Array, 'batch tokens twice_heads head_dim'],
      weights: Float[Array, 'batch twice_heads queries keys'] | None,
      layer: Int[Array, ''],
  ) -> tuple[Float[Array, 'batch tokens heads head_dim'],
             Float[Array, 'batch heads queries keys'] | None]:
    c = self.config
    vectors = self.param(  # Of query and key of the first and second half.
        'lambdas', nn.with_logical_partitioning(
            nn.initializers.normal(0.1), (None, 'head_dim')),
        (4, c.head_dim // 2))
    first, second = jnp.exp((vectors[::2] * vectors[1::2]).sum(axis=-1))
    start = 0.8 - 0.6 * jnp.exp(-0.3 * layer)
    factor = first - second + start
    values = (values[:, :, ::2]
              - factor.astype(values.dtype) * values[:, :, 1::2])
    if weights is not None:
      weights = weights[:, ::2] - factor * weights[:, 1::2]
    norm = layers.layer_norm(
        dataclasses.replace(c, norm='rms', layer_norm_epsilon=1e-5), 'norm',
        axis='head_dim')
    return norm(values) * (1 - start).astype(values.dtype), weights
