"""Attention pooling, representation layer and classification head."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import attention as attention_lib
from vit_jax.models import layers
from vit_jax.models import vit_config


class AttentionPooling(nn.Module):
  """Attention by one learned query, then an MLP (MAP; arXiv 2106.04560)."""
  config: vit_config.ViTConfig
  train: bool

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'],
  ) -> Float[Array, 'batch width']:
    c = dataclasses.replace(
        self.config, mlp='gelu', inner_norm='none', proj_bias=True,
        mlp_bias=True, rotary=None, differential=False,
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
    normed = layers.layer_norm(c, 'mlp_norm')(pooled)
    return (pooled + layers.Mlp(c, self.train, name='mlp')(normed))[:, 0]


class Merger(nn.Module):
  """Joins blocks of patch tokens by an MLP (arXiv 2409.12191, section 2.1)."""
  config: vit_config.ViTConfig

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch patches width'], grid: tuple[int, int],
  ) -> Float[Array, 'batch blocks merged']:
    c = self.config
    patches = jnp.pad(
        tokens.reshape(tokens.shape[0], *grid, c.width),
        [(0, 0), *((0, -side % c.merge) for side in grid), (0, 0)])
    hidden = layers.PatchEmbedding(
        (c.merge, c.merge), c.merge_mlp_dim, c.compute_dtype, name='hidden')(
            patches)
    merged = layers.dense(
        c.merge_dim, ('width', None), 'out', dtype=c.compute_dtype)(
            layers.gelu(hidden, 'exact'))
    return merged.reshape(tokens.shape[0], -1, c.merge_dim)


class RepresentationLayer(nn.Module):
  """Dense tanh layer between pooling and head, for pre-training only."""
  config: vit_config.ViTConfig

  @nn.compact
  def __call__(
      self, pooled: Float[Array, 'batch pooled'],
  ) -> Float[Array, 'batch width']:
    c = self.config
    return jnp.tanh(layers.dense(
        c.width, ('width', None), 'dense', dtype=c.compute_dtype,
        kernel=nn.initializers.lecun_normal())(pooled))


class Head(nn.Module):
  """Linear classifier in float32, with a zero-initialised kernel.

  `distilled`: whether there is a second classifier, for the distillation token.
  """
  num_classes: int
  bias: float
  distilled: bool = False

  def setup(self):
    self.dense = self._classifier()
    if self.distilled:
      self.distill = self._classifier()

  def _classifier(self) -> nn.Module:
    return layers.dense(
        self.num_classes, ('width', 'classes'), dtype=jnp.float32,
        kernel=nn.initializers.zeros,
        bias=nn.initializers.constant(self.bias))

  def __call__(
      self, representation: Float[Array, 'batch width'],
  ) -> Float[Array, 'batch classes']:
    return self.dense(representation)
