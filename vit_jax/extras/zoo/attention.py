"""Self-attention of the backbones of today."""

import dataclasses
import functools
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax.extras.zoo import backbone_config
from vit_jax.extras.zoo import backbone_layers
from vit_jax.extras.zoo import relative
from vit_jax.extras.zoo import rotary as rotary_lib
from vit_jax.models import attention as attention_lib
from vit_jax.models import layers
from vit_jax.models import vit


class SelfAttention(nn.Module):
  """Multi-head self-attention with one projection for q, k and v.

  Fused kernels return no weights and support neither dropout nor bias.
  """
  config: backbone_config.BackboneConfig
  train: bool
  capture: vit.Capture
  grid: tuple[int, int]

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'],
      shared: Float[Array, '...'] | None,
      layer: Int[Array, ''],
  ) -> tuple[Float[Array, 'batch tokens width'],
             Float[Array, 'batch heads tokens tokens'] | None]:
    """Applies attention.

    `shared`: relative bias [1, heads, tokens, tokens] that all layers use.
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
      query = backbone_layers.norm(c, 'query_norm', axis='head_dim')(query)
      key = backbone_layers.norm(c, 'key_norm', axis='head_dim')(key)
    if c.rotary is not None:
      query, key = self._rotate(c.rotary, query, key)
    bias = None
    if c.has_offset_bias:
      bias = shared if c.position_at == 'shared' else (
          relative.RelativeBias(c, self.grid, name='relative')())
    drops = self.train and c.attention_dropout > 0
    values = weights = None
    if not (bias is not None or self.capture is True or drops):
      values = attention_lib.without_weights(
          query, key, value, kernel='plain' if c.differential else c.attention,
          recompute=c.remat == 'attention')
    if values is None:
      values, weights = attention_lib.dot_product_attention(
          query, *(attention_lib.repeat_heads(array, query.shape[2])
                   for array in (key, value)), bias=bias,
          drop=layers.Dropout(
              c.attention_dropout, deterministic=not self.train))
    if c.differential:
      values, weights = Difference(c, name='difference')(values, weights, layer)
    if c.inner_norm == 'both':
      merged = einops.rearrange(values, 'b t n h -> b t (n h)')
      values = backbone_layers.norm(c, 'inner_norm')(merged).reshape(
          values.shape)
    out = layers.dense(
        c.width, ('heads', 'head_dim', 'width'), 'out', dtype=c.compute_dtype,
        bias=nn.initializers.zeros if c.proj_bias else None)
    return out(values), weights

  def _projections(self) -> list[tuple[jax.Array, Any]]:
    """Returns kernel [width, heads, head_dim] and bias of q, k and v.

    Fewer heads of keys and values have an array of their own.
    """
    c = self.config
    kernels: list[jax.Array] = []
    biases: list[Any] = []
    for name, heads in c.projections.items():
      kernel = self.param(
          f'{name}_kernel',
          nn.with_logical_partitioning(
              layers.XAVIER_QKV, ('width', None, 'heads', 'head_dim')),
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
      self, config: rotary_lib.RotaryConfig, *arrays: jax.Array,
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
    return [rotary_lib.rotate(array, angles, halves=config.halves)
            for array in arrays]


class Difference(nn.Module):
  """Difference of two attentions of each head (arXiv 2410.05258, section 2).

  Each half of the queries and keys of a head attends on its own. The second is
  multiplied by lambda (equation 2) and subtracted from the first (equation 1);
  the difference is normalised (equation 3).
  """
  config: backbone_config.BackboneConfig

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
    norm = backbone_layers.norm(
        dataclasses.replace(c, norm='rms', layer_norm_epsilon=1e-5), 'norm',
        axis='head_dim')
    return norm(values) * (1 - start).astype(values.dtype), weights
