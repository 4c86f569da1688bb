"""Layers of the backbones of today, where they differ from those of a ViT."""

import dataclasses
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.extras.zoo import backbone_config
from vit_jax.extras.zoo import interpolation
from vit_jax.models import attention as attention_lib
from vit_jax.models import layers
from vit_jax.models import positions as positions_lib


def norm(
    config: backbone_config.BackboneConfig, name: str, *, axis: str = 'norm',
) -> nn.LayerNorm | nn.RMSNorm:
  """Layer norm or RMS norm over the logical `axis`, float32 statistics."""
  options: dict[str, Any] = {
      'epsilon': config.layer_norm_epsilon, 'dtype': config.compute_dtype,
      'scale_init': nn.with_logical_partitioning(
          nn.initializers.ones, (axis,)), 'name': name}
  if config.norm == 'rms':
    return nn.RMSNorm(**options)
  return nn.LayerNorm(
      **options, bias_init=nn.with_logical_partitioning(
          nn.initializers.zeros, (axis,)))


def gelu(inputs: Float[Array, '...'], kind: str) -> Float[Array, '...']:
  """GELU, also the 'quick' one: x sigmoid(1.702 x), as in CLIP."""
  if kind == 'quick':
    return inputs * jax.nn.sigmoid(1.702 * inputs)
  return layers.gelu(inputs, kind)


class Patches(nn.Module):
  """Projects the patches of images (equation 1: x_p E).

  As `vit.Patches`, also without a bias.

  `resized`: size of the patches, if it differs from that of the kernel.
  """
  patch: tuple[int, int]
  width: int
  dtype: jnp.dtype
  use_bias: bool = True
  resized: tuple[int, int] | None = None

  @nn.compact
  def __call__(
      self, images: Float[Array, 'batch height width channels'],
  ) -> Float[Array, 'batch rows columns embedding']:
    rows, columns = positions_lib.grid_shape(
        (images.shape[1], images.shape[2]), self.resized or self.patch)
    kernel = self.param(
        'kernel',
        nn.with_logical_partitioning(
            nn.initializers.lecun_normal(), (None, None, None, 'width')),
        (*self.patch, images.shape[-1], self.width))
    if self.resized is not None:
      kernel = interpolation.resize_filters(kernel, self.resized)
    patches = einops.rearrange(
        images.astype(self.dtype), 'b (r p) (c q) ch -> b r c (p q ch)',
        r=rows, c=columns)
    matrix = kernel.reshape(-1, self.width).astype(self.dtype)
    embedded = jnp.einsum('brcp,pw->brcw', patches, matrix)
    if not self.use_bias:
      return embedded
    bias = self.param(
        'bias',
        nn.with_logical_partitioning(nn.initializers.zeros, ('norm',)),
        (self.width,))
    return embedded + bias.astype(self.dtype)


class Mlp(nn.Module):
  """W_out a(W_hidden x), with a the GELU (equation 3), or SwiGLU.

  SwiGLU is W_out (silu(W_gate x) * W_hidden x) (arXiv 2002.05202, equation 6).
  """
  config: backbone_config.BackboneConfig
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
      return layers.saved(projected, 'hidden')

    hidden = (jax.nn.silu(project('gate')) * project('hidden')
              if c.mlp == 'swiglu' else gelu(project('hidden'), c.gelu))
    hidden = layers.Dropout(c.dropout, deterministic=not self.train)(hidden)
    if c.inner_norm != 'none':
      hidden = norm(c, 'inner_norm', axis='mlp')(hidden)
    if c.parallel and c.differential:  # As in timm, that of the attention.
      options['bias'] = None
    out = layers.dense(c.width, ('mlp', 'width'), 'out', **options)(hidden)
    return layers.Dropout(c.dropout, deterministic=not self.train)(out)


class AttentionPooling(nn.Module):
  """Attention by one learned query, then an MLP (MAP; arXiv 2106.04560)."""
  config: backbone_config.BackboneConfig
  train: bool

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'],
  ) -> Float[Array, 'batch width']:
    c = dataclasses.replace(
        self.config, mlp='gelu', inner_norm='none', proj_bias=True,
        rotary=None, differential=False,
        num_heads=self.config.pool_heads or self.config.num_heads,
        mlp_dim=self.config.pool_mlp_dim or self.config.mlp_dim)
    probe = self.param(
        'probe', nn.with_logical_partitioning(
            nn.initializers.xavier_uniform(), (None, 'norm')),
        (1, c.width))

    def project(name: str, inputs: Any) -> Any:
      return layers.dense(
          (c.num_heads, c.head_dim), ('width', 'heads', 'head_dim'), name,
          dtype=c.compute_dtype)(inputs)

    query = project('query', jnp.tile(
        probe.astype(c.compute_dtype), (tokens.shape[0], 1, 1)))
    pooled, _ = attention_lib.dot_product_attention(
        query, project('key', tokens), project('value', tokens))
    pooled = layers.dense(c.width, ('heads', 'head_dim', 'width'), 'out',
                          dtype=c.compute_dtype)(pooled)
    normed = norm(c, 'mlp_norm')(pooled)
    return (pooled + Mlp(c, self.train, name='mlp')(normed))[:, 0]


class Head(layers.Head):
  """Classifier, with a second one for the distillation token if `distilled`."""
  distilled: bool = False

  def setup(self):
    super().setup()
    if self.distilled:
      self.distill = self.classifier()
