"""Self-attention in JAX's Pallas kernels for TPUs, without attention weights.

The kernels compute blocks of logits on the chip and keep only the logarithm of
each query's sum of exponentials (arXiv 2205.14135). They pay with long
sequences: docs/measurements.md.
"""

import math

import flax.linen as nn
import jax
from jax.experimental.pallas.ops.tpu import splash_attention as kernels
import jax.numpy as jnp
from jaxtyping import Array, Float

LANES = 128  # The kernels take multiples of a TPU's vector lanes.
MAX_BLOCK = 1024
# 'auto' uses the kernels from this number of tokens.
MIN_TOKENS = 512


def attention(
    query: Float[Array, 'batch tokens heads head_dim'],
    key: Float[Array, 'batch tokens groups head_dim'],
    value: Float[Array, 'batch tokens groups head_dim'],
) -> Float[Array, 'batch tokens heads head_dim']:
  """Attention of one device's images and heads (appendix A, equations 6, 7)."""
  tokens, heads = query.shape[1:3]
  # As few blocks as fit into the memory of the chip, and little padding.
  count = math.ceil(tokens / MAX_BLOCK)
  block = LANES * math.ceil(tokens / count / LANES)
  padding = count * block - tokens
  query, key, value = (
      jnp.pad(array, ((0, 0), (0, padding), (0, 0), (0, 0))).swapaxes(1, 2)
      for array in (query * query.shape[-1] ** -0.5, key, value))
  length = tokens + padding
  # All queries attend to the keys of their own segment 0; padding is another.
  segments = kernels.SegmentIds(
      jnp.zeros(length, jnp.int32),
      (jnp.arange(length) >= tokens).astype(jnp.int32))
  kernel = kernels.make_splash_mha_single_device(
      kernels.MultiHeadMask([kernels.FullMask((length, length))] * heads),
      block_sizes=kernels.BlockSizes(
          block_q=block, block_kv=block, block_q_dkv=block, block_kv_dkv=block,
          use_fused_bwd_kernel=True),
      residual_checkpoint_name='attended')  # As `layers.saved` does.
  values = jax.vmap(lambda q, k, v: kernel(q, k, v, segments))(
      query, key, value)
  return values.swapaxes(1, 2)[:, :tokens]


class SplashAttention(nn.Module):
  """`attention` as a module, so that each device calls the kernel.

  The compiler cannot partition a kernel. `parallel.sharding.keep_batch_split`
  therefore maps modules with `per_device` over the mesh.
  """
  per_device = True

  def __call__(
      self, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    return attention(query, key, value)
