"""Forms of attention, with the results of the equation in `vit.py`.

Most need less memory than the equation: they recompute the weights in the
backward pass, or are fused kernels of cuDNN or for TPUs. Logits have the dtype
of the queries, because an array that is quadratic in tokens causes most of the
memory traffic; the softmax is computed in float32.
"""

from collections.abc import Callable
from typing import Any, Literal

import einops
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.exceptions import UserError
from vit_jax.models import layers

Kernel = Literal['plain', 'cudnn', 'splash', 'auto']


def check(kernel: Kernel, dtype: str) -> None:
  """Raises a `UserError` if a kernel does not support the dtype."""
  if kernel == 'cudnn' and dtype == 'float32':
    raise UserError(
        "attention 'cudnn' needs bfloat16, but dtype is 'float32'. Set dtype "
        "to 'bfloat16', or attention to 'plain'.")


def without_weights(
    query: Float[Array, 'batch tokens heads head_dim'],
    key: Float[Array, 'batch tokens groups head_dim'],
    value: Float[Array, 'batch tokens value_groups channels'],
    *, kernel: Kernel, recompute: bool,
) -> Float[Array, 'batch tokens heads channels'] | None:
  """Returns attention by a form that never keeps the weights, or None.

  A fused kernel if `kernel` selects one ('auto': for many tokens), otherwise
  `recomputed_attention` if `recompute` is set, otherwise None: the caller
  applies the equation. Called in a compact module, of which the kernel for TPUs
  is a submodule.
  """
  if kernel in ('splash', 'auto'):
    from vit_jax import registry  # The model itself needs no names.
    splash = registry.load(registry.SPLASH)
    if kernel == 'splash' or query.shape[1] >= splash.MIN_TOKENS:
      return splash.SplashAttention(name='splash')(query, key, value)
  if kernel == 'cudnn':
    return jax.nn.dot_product_attention(
        query, key, value, implementation='cudnn')
  if recompute:
    return recomputed_attention(
        query, *(repeat_heads(array, query.shape[2]) for array in (key, value)))
  return None


def repeat_heads(
    array: Float[Array, 'batch keys groups head_dim'], num_heads: int,
) -> Float[Array, 'batch keys heads head_dim']:
  """Repeats each head of keys or values for its group of query heads.

  Grouped-query attention, arXiv 2305.13245, section 2.2. cuDNN needs no
  repetition.
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
  log_sums = layers.saved(jnp.squeeze(highest + jnp.log(sums), -1), 'log_sums')
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
  logits = jnp.einsum('bqnh,bknh->bnqk', query * query.shape[-1] ** -0.5, key)
  return logits.astype(jnp.float32)
