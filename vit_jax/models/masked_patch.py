"""ViT that predicts masked patches, optionally with a decoder (MAE).

Without a decoder, masked patches are replaced at the input of the encoder, and
a dense layer predicts them from its output (arXiv 2010.11929, section 4.6).
With a decoder, the encoder processes visible patches only (arXiv 2111.06377).

The parameters are the ViT's, under the same names, and `masked_patch/`,
which fine-tuning drops.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax.models import layers
from vit_jax.models import positions as positions_lib
from vit_jax.models import vit


class MaskedPatch(nn.Module):
  """ViT with a mask embedding and predictions of patches.

  The head and, without a decoder, the class token are not trained; they are
  kept so that the model evaluates and loads like any ViT.

  Attributes:
    config: the ViT.
    num_outputs: outputs of each predicted patch.
    decoder: Transformer between encoder and predictions; None for none.
  """
  config: vit.ViTConfig
  num_outputs: int
  decoder: vit.ViTConfig | None = None

  def setup(self):
    self.vit = self.config.build()
    # Keeps the parameters of the ViT at the top level.
    nn.share_scope(self, self.vit)
    self.masked_patch = _MaskedPatch(
        self.config, self.num_outputs, self.decoder)

  def __call__(
      self,
      images: Float[Array, 'batch height width channels'],
      *,
      train: bool = False,
      capture: bool = False,
      sources: Int[Array, 'batch patches'] | None = None,
      indices: Int[Array, 'batch predicted'] | None = None,
      visible: Int[Array, 'batch visible'] | None = None,
  ) -> dict[str, Any]:
    """Applies the model.

    Args:
      images: preprocessed images.
      train: see `vit.ViT`.
      capture: see `vit.ViT`.
      sources: index of the embedding to use for each patch, before the encoder
        or, if there is one, before the decoder; the index after the last is the
        mask embedding. None uses each patch's own.
      indices: patches to predict; None predicts all.
      visible: see `vit.ViT`.

    Returns:
      The outputs of `vit.ViT` and `predictions` [batch, predicted, outputs].
    """
    def replace(patches: jax.Array) -> jax.Array:
      return self.masked_patch.replace(patches, sources)

    outputs = self.vit(
        images, train=train, capture=capture, visible=visible,
        replace=replace if self.decoder is None else None)
    tokens = outputs['tokens']
    if self.decoder is not None:
      grid = self.config.grid((images.shape[1], images.shape[2]))
      tokens = self.masked_patch.decode(tokens, sources, grid, train)
    tokens = tokens[:, self.config.num_prefix:]
    if indices is not None:
      tokens = jnp.take_along_axis(tokens, indices[..., None], axis=1)
    predictions = self.masked_patch.prediction(tokens.astype(jnp.float32))
    return {**outputs, 'predictions': predictions}


class _MaskedPatch(nn.Module):
  """Mask embedding, optional decoder, and prediction layer."""
  config: vit.ViTConfig
  num_outputs: int
  decoder: vit.ViTConfig | None

  def setup(self):
    width = (self.decoder or self.config).width
    self.mask = self.param(
        'mask', nn.with_logical_partitioning(
            nn.initializers.normal(0.02), ('norm',)), (width,))
    if self.decoder is not None:
      self.embed = layers.dense(
          width, ('width', None), dtype=self.decoder.compute_dtype)
      self.blocks = _Decoder(self.decoder, name='decoder')
    # Zero-initialised and float32, like the classifier.
    self.prediction = layers.dense(
        self.num_outputs, ('width', 'classes'), dtype=jnp.float32,
        kernel=nn.initializers.zeros)

  def replace(
      self, patches: Float[Array, 'batch given width'],
      sources: Int[Array, 'batch patches'] | None,
  ) -> Float[Array, 'batch patches width']:
    """Selects embeddings of patches according to `sources`."""
    if sources is None:
      return patches
    mask = jnp.broadcast_to(
        self.mask.astype(patches.dtype),
        (patches.shape[0], 1, patches.shape[2]))
    return jnp.take_along_axis(
        jnp.concatenate([patches, mask], axis=1), sources[..., None], axis=1)

  def decode(
      self, tokens: Float[Array, 'batch tokens width'],
      sources: Int[Array, 'batch patches'] | None, grid: tuple[int, int],
      train: bool,
  ) -> Float[Array, 'batch decoded decoder_width']:
    """Decodes class token, registers and all patches of the grid."""
    prefix = self.config.num_prefix
    embedded = self.embed(tokens)
    return self.blocks(jnp.concatenate([
        embedded[:, :prefix],
        self.replace(embedded[:, prefix:], sources)], axis=1), grid, train)


class _Decoder(nn.Module):
  """Transformer over all patches with fixed sine-cosine positions."""
  config: vit.ViTConfig

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'], grid: tuple[int, int],
      train: bool,
  ) -> Float[Array, 'batch tokens width']:
    c = self.config
    positions = positions_lib.embeddings(
        self.param, 'sincos', grid, c.width,
        num_prefix=tokens.shape[1] - grid[0] * grid[1])
    assert positions is not None
    tokens, _ = vit.Encoder(c, train, False, name='encoder')(
        tokens + positions.astype(tokens.dtype))
    return layers.layer_norm(c, 'final_norm')(tokens)
