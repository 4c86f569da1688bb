"""The Vision Transformer (arXiv 2010.11929, section 3.1, equations 1 to 4)."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax.models import decoder as decoder_lib
from vit_jax.models import embed
from vit_jax.models import encoder
from vit_jax.models import heads
from vit_jax.models import layers
from vit_jax.models import relative
from vit_jax.models import resnet
from vit_jax.models import vit_config


class ViT(nn.Module):
  """ViT classifier with named outputs.

  Attributes:
    config: the model.
    patch: (height, width) of the patches; None for `config.patch`, the size
      of the patch kernel.
    grid: rows and columns of patches that the positions are for, if images may
      have another size.
  """
  config: vit_config.ViTConfig
  patch: tuple[int, int] | None = None
  grid: tuple[int, int] | None = None

  @nn.compact
  def __call__(
      self,
      images: Float[Array, 'batch height width channels'],
      *,
      train: bool = False,
      capture: bool = False,
      replace: Callable[[jax.Array], jax.Array] | None = None,
      visible: Int[Array, 'batch visible'] | None = None,
  ) -> dict[str, Any]:
    """Applies the model.

    Args:
      images: preprocessed images.
      train: enables dropout and stochastic depth; needs the rng `dropout`.
      capture: also returns the intermediates of every layer.
      replace: function of the patch embeddings [batch, patches, width] before
        positions are added.
      visible: indices of the patches that the encoder processes, whose tokens
        are returned in this order; None for all. Positions must be added at the
        stem only.

    Returns:
      `embedded` [batch, tokens, width]: encoder input.
      `tokens` [batch, tokens, width]: encoder output after the final norm:
        class and distillation token if any, registers, patches.
      `pooled` [batch, width], twice the width for 'cls_average', `merge_dim`
        with `merge`;
        `representation`: `pooled` after the optional tanh layer; `logits`
        [batch, classes], or with a decoder [batch, height, width, classes].
      `cls_logits`, `distill_logits` [batch, classes], with `distill_token`:
        the logits of each head; `logits` are their mean.
      `layers`, with `capture`: see `encoder.Encoder`.

    Raises:
      ValueError: if the images do not divide into patches.
    """
    c = self.config
    patches = self._patches(images)
    grid = (patches.shape[1], patches.shape[2])
    patches = patches.reshape(patches.shape[0], -1, c.width)
    if replace is not None:
      patches = replace(patches)
    embedded, shared = self._embed(patches, grid)
    if visible is not None:
      embedded = jnp.concatenate([
          embedded[:, :c.num_prefix],
          jnp.take_along_axis(
              embedded[:, c.num_prefix:], visible[..., None], axis=1)], axis=1)
    embedded = layers.Dropout(c.dropout, deterministic=not train)(embedded)
    if c.stem_norm == 'tokens':
      embedded = layers.layer_norm(c, 'stem_norm')(embedded)
    tokens, captured = encoder.Encoder(c, train, capture, grid, name='encoder')(
        embedded, shared)
    if c.final_norm:
      tokens = layers.layer_norm(c, 'final_norm')(tokens)
    pooled = self._pool(tokens, grid, train=train)
    representation = pooled
    if c.representation_layer:
      representation = heads.RepresentationLayer(
          c, name='representation')(pooled)
    outputs = {'embedded': embedded, 'tokens': tokens, 'pooled': pooled,
               'representation': representation}
    if c.decoder is not None:
      of_layers = [captured['after_mlp'][number - 1]
                   for number in c.decoder.layers] or [tokens]
      outputs['logits'] = decoder_lib.Decoder(c, name='head')([
          x[:, c.num_prefix:].reshape(-1, *grid, c.width)
          for x in of_layers])
    else:
      outputs |= self._classify(tokens, representation)
    return {**outputs, 'layers': captured} if capture else outputs

  def _patches(self, images: jax.Array) -> jax.Array:
    """Returns x_1 E ... x_N E of equation 1, [batch, rows, columns, width]."""
    c = self.config
    if c.backbone is not None:
      images = resnet.Backbone(c, name='backbone')(images)
    patches = layers.PatchEmbedding(
        c.patch_shape, c.width, c.compute_dtype,
        use_bias=c.stem_norm != 'tokens', resized=self.patch,
        name='patches')(images)
    if c.stem_norm == 'patches':
      patches = layers.layer_norm(c, 'patch_norm')(patches)
    return patches

  def _embed(
      self, patches: jax.Array, grid: tuple[int, int],
  ) -> tuple[jax.Array, jax.Array | None]:
    """Returns [class; x_1 E; ...; x_N E] + E_pos (equation 1).

    Also returns what every layer uses, if anything: positions, relative biases
    or the angles of the class token.
    """
    c = self.config
    normal = nn.initializers.normal(0.02)
    tokens = [self._learned_tokens(name, init, count, patches)
              for name, init, count in (
                  ('cls', nn.initializers.zeros, int(c.has_cls)),
                  ('distill', normal, int(c.distill_token)),
                  ('registers', normal, c.registers)) if count]
    embedded = jnp.concatenate([*tokens, patches], axis=1)
    if c.position_at == 'layers':
      return embedded, None
    if c.rotates_cls:
      count = c.head_dim // 2
      return embedded, self.param('cls_angles', nn.with_logical_partitioning(
          nn.initializers.normal(count**-0.5), (None, 'head_dim')), (1, count))
    if c.has_offset_bias and c.position_at == 'shared':
      return embedded, relative.RelativeBias(c, grid, name='relative')()
    own = self.grid or grid  # Grid of the position embeddings.
    if self.patch is not None and c.position == 'learned':
      own = vit_config.grid_shape(
          (grid[0] * self.patch[0], grid[1] * self.patch[1]), c.patch_shape)
    positions = embed.position_embeddings(self.param, c, own)
    if positions is None or c.position_at == 'shared':
      return embedded, positions
    positions = embed.resize_positions(
        positions, old_grid=own, new_grid=grid, method='bilinear')
    return embed.add_positions(
        embedded, positions, num_patches=grid[0] * grid[1]), None

  def _learned_tokens(
      self, name: str, init: Any, count: int, patches: jax.Array,
  ) -> jax.Array:
    """Returns learned tokens, [batch, count, width]."""
    learned = self.param(
        name, nn.with_logical_partitioning(init, (None, 'norm')),
        (count, self.config.width))
    return jnp.tile(learned.astype(patches.dtype), (patches.shape[0], 1, 1))

  def _classify(
      self, tokens: jax.Array, representation: jax.Array,
  ) -> dict[str, jax.Array]:
    """Returns `logits`, and with `distill_token` those of each head."""
    c = self.config
    head = heads.Head(
        c.num_classes, c.head_bias, c.distill_token, name='head')
    if c.distill_token:
      both = head(tokens[:, 0]), head.distill(tokens[:, 1])
      return {'cls_logits': both[0], 'distill_logits': both[1],
              'logits': (both[0] + both[1]) / 2}
    embedding = representation.astype(jnp.float32)
    if c.projection:
      embedding = layers.dense(
          c.projection, ('width', None), 'projection', dtype=jnp.float32)(
              embedding)
    if c.cosine_head:
      embedding /= jnp.linalg.norm(embedding, axis=-1, keepdims=True)
    return {'logits': head(embedding)}

  def _pool(
      self, tokens: jax.Array, grid: tuple[int, int], *, train: bool,
  ) -> jax.Array:
    c = self.config
    inputs = tokens if c.pool_prefix else tokens[:, c.num_prefix:]
    if c.merge:
      inputs = heads.Merger(c, name='merger')(inputs, grid)
    match c.pooling:
      case 'cls':
        pooled = (tokens[:, :2].mean(axis=1) if c.distill_token
                  else tokens[:, 0])
      case 'average':
        pooled = inputs.mean(axis=1)
      case 'cls_registers':
        pooled = tokens[:, :c.num_prefix].mean(axis=1)
      case 'cls_average':
        pooled = jnp.concatenate(
            [tokens[:, 0], inputs.mean(axis=1)], axis=1)
      case _:
        pooled = heads.AttentionPooling(c, train, name='pooling')(inputs)
    if c.pool_norm:
      pooled = layers.layer_norm(
          c, 'pool_norm', affine=c.pool_norm_affine)(pooled)
    return pooled
