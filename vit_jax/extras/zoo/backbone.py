"""Backbones of today: a ViT with the modules of other families."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.extras.zoo import backbone_config
from vit_jax.extras.zoo import backbone_layers
from vit_jax.extras.zoo import encoder
from vit_jax.extras.zoo import relative
from vit_jax.models import ablations
from vit_jax.models import layers
from vit_jax.models import positions as positions_lib
from vit_jax.models import resnet
from vit_jax.models import vit

_NORMAL = nn.initializers.normal(0.02)


class Backbone(vit.ViT):
  """ViT with the settings of a `BackboneConfig`.

  Besides the outputs of `vit.ViT`, with `distill_token`: `cls_logits` and
  `distill_logits` [batch, classes], of each head; `logits` are their mean.
  `tokens` are class and distillation token if any, registers, patches.

  Attributes:
    patch: (height, width) of the patches; None for `config.patch`, the size
      of the patch filters.
  """
  config: backbone_config.BackboneConfig
  patch: tuple[int, int] | None = None

  def patches(self, images: jax.Array) -> jax.Array:
    c = self.config
    if c.backbone is not None:
      images = resnet.Stem(c, name='backbone')(images)
    patches = backbone_layers.Patches(
        c.patch_shape, c.width, c.compute_dtype,
        use_bias=c.stem_norm != 'tokens', resized=self.patch,
        name='patches')(images)
    if c.stem_norm == 'patches':
      patches = backbone_layers.norm(c, 'patch_norm')(patches)
    return patches

  def embed(self, patches: vit.Embedded, grid: tuple[int, int]) -> vit.Tokens:
    embedded = self._with_positions(patches, grid)
    if self.config.stem_norm == 'tokens':
      embedded = backbone_layers.norm(self.config, 'stem_norm')(embedded)
    return embedded

  def _with_positions(
      self, patches: vit.Embedded, grid: tuple[int, int]) -> vit.Tokens:
    c = self.config
    tokens = [layers.learned_tokens(self, name, patches, count=count, init=init)
              for name, init, count in (
                  ('cls', nn.initializers.zeros, int(c.has_cls)),
                  ('distill', _NORMAL, int(c.distill_token)),
                  ('registers', _NORMAL, c.registers)) if count]
    embedded = jnp.concatenate([*tokens, patches], axis=1)
    own = self.grid or grid  # Grid of the position embeddings.
    if self.patch is not None and c.position == 'learned':
      own = positions_lib.grid_shape(
          (grid[0] * self.patch[0], grid[1] * self.patch[1]), c.patch_shape)
    positions = ablations.embeddings(
        self.param, c, own, num_prefix=c.num_class_tokens * c.position_cls)
    if positions is None:
      return embedded
    positions = positions_lib.resize_positions(
        positions, old_grid=own, new_grid=grid, method='bilinear')
    # Registers, between class tokens and patches, have no positions.
    prefix = positions.shape[0] - grid[0] * grid[1]
    gap = jnp.zeros(
        (embedded.shape[1] - positions.shape[0], c.width), positions.dtype)
    return embedded + jnp.concatenate(
        [positions[:prefix], gap, positions[prefix:]]).astype(embedded.dtype)

  def encode(
      self, tokens: vit.Tokens, grid: tuple[int, int], *, train: bool,
      capture: vit.Capture,
  ) -> tuple[vit.Tokens, dict[str, Any]]:
    c, shared = self.config, None
    if c.position_at == 'shared':
      shared = relative.RelativeBias(c, grid, name='relative')()
    return encoder.Encoder(c, train, capture, grid, name='encoder')(
        tokens, shared)

  def norm(self, name: str) -> nn.Module:
    return backbone_layers.norm(self.config, name)

  def pool(
      self, tokens: vit.Tokens, grid: tuple[int, int], *, train: bool,
  ) -> Float[Array, 'batch pooled']:
    c = self.config
    inputs = tokens if c.pool_prefix else tokens[:, c.num_prefix:]
    match c.pooling:
      case 'cls':
        return (tokens[:, :2].mean(axis=1) if c.distill_token else tokens[:, 0])
      case 'average':
        return inputs.mean(axis=1)
      case 'cls_registers':
        return tokens[:, :c.num_prefix].mean(axis=1)
      case 'cls_average':
        return jnp.concatenate([tokens[:, 0], inputs.mean(axis=1)], axis=1)
      case _:
        return backbone_layers.AttentionPooling(
            c, train, name='pooling')(inputs)

  def classify(
      self, tokens: vit.Tokens, representation: jax.Array,
      captured: dict[str, Any], grid: tuple[int, int],
  ) -> dict[str, jax.Array]:
    del captured, grid
    c = self.config
    head = backbone_layers.Head(
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
