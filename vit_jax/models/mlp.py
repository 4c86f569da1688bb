"""MLP of a Transformer layer: two dense layers with a GELU, or SwiGLU."""

from typing import Any

import flax.linen as nn
import jax
from jax import ad_checkpoint
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import layers
from vit_jax.models import vit_config


class Mlp(nn.Module):
  """W_out a(W_hidden x), with a the GELU (equation 3), or SwiGLU.

  SwiGLU is W_out (silu(W_gate x) * W_hidden x) (arXiv 2002.05202, equation 6).
  """
  config: vit_config.ViTConfig
  train: bool

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'],
  ) -> Float[Array, 'batch tokens width']:
    c = self.config
    options: Any = {
        'dtype': c.compute_dtype,
        'bias': nn.initializers.normal(1e-6) if c.proj_bias else None}

    def project(name: str) -> jax.Array:
      projected = layers.dense(
          c.mlp_dim, ('width', 'mlp'), name, **options)(tokens)
      return ad_checkpoint.checkpoint_name(projected, 'hidden')

    hidden = (jax.nn.silu(project('gate')) * project('hidden')
              if c.mlp == 'swiglu' else gelu(project('hidden'), c.gelu))
    hidden = layers.Dropout(c.dropout, deterministic=not self.train)(hidden)
    if c.inner_norm != 'none':
      hidden = layers.layer_norm(c, 'inner_norm', axis='mlp')(hidden)
    out = layers.dense(c.width, ('mlp', 'width'), 'out', **options)(hidden)
    return layers.Dropout(c.dropout, deterministic=not self.train)(out)


def gelu(inputs: Float[Array, '...'], kind: str) -> Float[Array, '...']:
  """GELU (arXiv 1606.08415): 'exact', or its 'tanh' or 'quick' approximation.

  Quick is x sigmoid(1.702 x) (section 2), as in CLIP.
  """
  if kind == 'quick':
    return inputs * jax.nn.sigmoid(1.702 * inputs)
  if kind == 'tanh':
    return jax.nn.gelu(inputs)
  # The erfc of `jax.nn.gelu` is not fused: 18 % more bytes in a step of B/16.
  inputs_f32 = inputs.astype(jnp.float32)
  outputs = 0.5 * inputs_f32 * (1 + jax.lax.erf(inputs_f32 * 0.5 ** 0.5))
  return outputs.astype(inputs.dtype)
