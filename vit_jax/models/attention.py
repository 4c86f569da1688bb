"""Dot-product attention: in plain JAX, or a fused kernel of cuDNN."""

from collections.abc import Callable
from typing import Any

import einops
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def dot_product_attention(
    query: Float[Array, 'batch queries heads head_dim'],
    key: Float[Array, 'batch keys heads head_dim'],
    value: Float[Array, 'batch keys heads head_dim'],
    *,
    bias: Float[Array, 'batch heads queries keys'] | None = None,
    drop: Callable[[jax.Array], jax.Array] = lambda weights: weights,
) -> tuple[Float[Array, 'batch queries heads head_dim'],
           Float[Array, 'batch heads queries keys']]:
  """Attention with a float32 softmax (appendix A, equations 6 and 7).

  Args:
    query: projected queries.
    key: projected keys.
    value: projected values.
    bias: float32, added to the logits.
    drop: dropout of the attention weights.

  Returns:
    The weighted values, and the float32 weights before dropout.
  """
  scale = query.shape[-1] ** -0.5
  logits = jnp.einsum('bqnh,bknh->bnqk', query * scale, key,
                      preferred_element_type=jnp.float32)
  if bias is not None:
    logits += bias
  weights = jax.nn.softmax(logits, axis=-1)
  values = jnp.einsum(
      'bnqk,bknh->bnqh', drop(weights).astype(value.dtype), value)
  return einops.rearrange(values, 'b n q h -> b q n h'), weights


def fused_attention(
    query: Float[Array, 'batch tokens heads head_dim'],
    key: Float[Array, 'batch tokens heads head_dim'],
    value: Float[Array, 'batch tokens heads head_dim'],
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
