"""The Vision Transformer (arXiv 2010.11929, section 3.1, equations 1 to 4)."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import embed
from vit_jax.models import encoder
from vit_jax.models import heads
from vit_jax.models import vit_config


class ViT(nn.Module):
  """Classifies images; every intermediate comes out by name."""
  config: vit_config.ViTConfig

  @nn.compact
  def __call__(
      self,
      images: Float[Array, 'batch height width channels'],
      *,
      train: bool = False,
      capture: bool = False,
  ) -> dict[str, Any]:
    """Applies the model.

    Args:
      images: in the model's value range.
      train: applies dropout and stochastic depth; needs the rng `dropout`.
      capture: also returns the intermediates of every layer.

    Returns:
      `embedded` [batch, tokens, width]: with positions, what the encoder gets.
      `tokens` [batch, tokens, width]: what it returns, after the final norm;
        the class token, where there is one, is the first.
      `pooled` [batch, width]; `representation` [batch, width]: after the tanh
        layer where there is one, else the same; `logits` [batch, classes].
      `layers`, with `capture`: see `encoder.Encoder`.

    Raises:
      ValueError: if the images do not divide into patches.
    """
    c = self.config
    embedded = self._embed(images)
    embedded = nn.Dropout(c.dropout, deterministic=not train)(embedded)
    tokens, layers = encoder.Encoder(c, train, capture, name='encoder')(
        embedded)
    if c.final_norm:
      tokens = encoder.layer_norm(c, 'final_norm')(tokens)
    pooled = self._pool(tokens, train=train)
    representation = pooled
    if c.representation_layer:
      representation = heads.RepresentationLayer(
          c, name='representation')(pooled)
    logits = heads.Head(c.num_classes, c.head_bias, name='head')(
        representation)
    outputs = {'embedded': embedded, 'tokens': tokens, 'pooled': pooled,
               'representation': representation, 'logits': logits}
    return {**outputs, 'layers': layers} if capture else outputs

  def _embed(self, images: jax.Array) -> jax.Array:
    """Equation 1: [class; x_1 E; ...; x_N E] + E_pos."""
    c = self.config
    patches = embed.PatchEmbedding(
        c.patch_shape, c.width, c.compute_dtype, name='patches')(images)
    tokens = patches.reshape(patches.shape[0], -1, c.width)
    if c.pooling == 'cls':
      cls = self.param('cls', nn.with_logical_partitioning(
          nn.initializers.zeros, (None, 'norm')), (1, c.width))
      cls = jnp.tile(cls.astype(c.compute_dtype), (tokens.shape[0], 1, 1))
      tokens = jnp.concatenate([cls, tokens], axis=1)
    positions = self.param('positions', nn.with_logical_partitioning(
        nn.initializers.normal(0.02), (None, 'width')), tokens.shape[1:])
    return tokens + positions.astype(c.compute_dtype)

  def _pool(self, tokens: jax.Array, *, train: bool) -> jax.Array:
    match self.config.pooling:
      case 'cls':
        return tokens[:, 0]
      case 'average':
        return tokens.mean(axis=1)
      case _:
        return heads.AttentionPooling(
            self.config, train, name='pooling')(tokens)
