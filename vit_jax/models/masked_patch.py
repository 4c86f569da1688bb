"""ViT with masked patch prediction (section 4.6, appendix B.1.2).

Its parameters are those of the ViT, under the same names, and `masked_patch/`,
which fine-tuning drops.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax.models import layers
from vit_jax.models import vit
from vit_jax.models import vit_config


class MaskedPatch(nn.Module):
  """ViT with a mask embedding and a prediction layer on patch tokens.

  Head and class token are not trained; they make the model evaluate and load
  like any ViT.
  """
  config: vit_config.ViTConfig
  num_outputs: int

  def setup(self):
    self.vit = vit.ViT(self.config)
    # Keeps the parameters of the ViT at the top level.
    nn.share_scope(self, self.vit)
    self.masked_patch = _MaskedPatch(self.config, self.num_outputs)

  def __call__(
      self,
      images: Float[Array, 'batch height width channels'],
      *,
      train: bool = False,
      capture: bool = False,
      sources: Int[Array, 'batch patches'] | None = None,
      indices: Int[Array, 'batch predicted'] | None = None,
  ) -> dict[str, Any]:
    """Applies the model.

    Args:
      images: preprocessed images.
      train: see `vit.ViT`.
      capture: see `vit.ViT`.
      sources: index of the patch embedding to use at each position; index
        `patches` is the mask embedding. None uses each patch's own.
      indices: patches to predict; None predicts all.

    Returns:
      The outputs of `vit.ViT` and `predictions` [batch, predicted, outputs].
    """
    def replace(patches: jax.Array) -> jax.Array:
      return self.masked_patch.replace(patches, sources)

    outputs = self.vit(images, train=train, capture=capture, replace=replace)
    tokens = outputs['tokens'][:, self.config.num_prefix:]
    if indices is not None:
      tokens = jnp.take_along_axis(tokens, indices[..., None], axis=1)
    return {**outputs, 'predictions': self.masked_patch.predict(tokens)}


def without_prediction(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters, or their shapes, without `masked_patch/`."""
  return {name: value for name, value in params.items()
          if name != 'masked_patch'}


class _MaskedPatch(nn.Module):
  """Mask embedding and prediction layer."""
  config: vit_config.ViTConfig
  num_outputs: int

  def setup(self):
    self.mask = self.param(
        'mask', nn.with_logical_partitioning(
            nn.initializers.normal(0.02), ('norm',)), (self.config.width,))
    # Zero-initialised and float32, like the classifier.
    self.prediction = layers.dense(
        self.num_outputs, ('width', 'classes'), dtype=jnp.float32,
        kernel=nn.initializers.zeros)

  def replace(
      self, patches: Float[Array, 'batch patches width'],
      sources: Int[Array, 'batch patches'] | None,
  ) -> Float[Array, 'batch patches width']:
    """Replaces patch embeddings according to `sources`."""
    if sources is None:
      return patches
    mask = jnp.broadcast_to(
        self.mask.astype(patches.dtype),
        (patches.shape[0], 1, patches.shape[2]))
    return jnp.take_along_axis(
        jnp.concatenate([patches, mask], axis=1), sources[..., None], axis=1)

  def predict(
      self, tokens: Float[Array, 'batch predicted width'],
  ) -> Float[Array, 'batch predicted outputs']:
    """Returns the predictions of each token."""
    return self.prediction(tokens.astype(jnp.float32))
