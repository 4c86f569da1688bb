"""A ViT that predicts patches it does not see (section 4.6, appendix B.1.2).

Its parameters are the ViT's, under the ViT's own names, and beside them those
of `masked_patch/`: a run that starts from it leaves these out.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax.models import vit
from vit_jax.models import vit_config


class MaskedPatch(nn.Module):
  """A ViT with a mask embedding, and a prediction from tokens of patches.

  The head learns nothing from such predictions, nor is the output of a class
  token trained; they are there so that the model can be evaluated and loaded as
  any ViT.
  """
  config: vit_config.ViTConfig
  num_outputs: int

  def setup(self):
    self.vit = vit.ViT(self.config)
    # The ViT's parameters are at the top, where any ViT has them.
    nn.share_scope(self, self.vit)
    self.masked_patch = _MaskedPatch(self.config, self.num_outputs)

  def __call__(
      self,
      images: Float[Array, 'batch height width channels'],
      *,
      train: bool = False,
      capture: bool = False,
      sources: Int[Array, 'batch patches'] | None = None,
      places: Int[Array, 'batch predicted'] | None = None,
  ) -> dict[str, Any]:
    """Applies the model.

    Args:
      images: in the model's value range.
      train: see `vit.ViT`.
      capture: see `vit.ViT`.
      sources: for each place, the patch of the same image whose embedding
        stands there; the number of patches means the mask embedding. Left out,
        each stands in its own place.
      places: patches to predict; left out, all.

    Returns:
      What `vit.ViT` does, and `predictions` [batch, predicted, outputs].
    """
    def replace(patches: jax.Array) -> jax.Array:
      return self.masked_patch.replace(patches, sources)

    outputs = self.vit(images, train=train, capture=capture, replace=replace)
    tokens = outputs['tokens'][:, self.config.num_prefix:]
    if places is not None:
      tokens = jnp.take_along_axis(tokens, places[..., None], axis=1)
    return {**outputs, 'predictions': self.masked_patch.predict(tokens)}


def without_prediction(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters, or their shapes, without those a plain ViT has not."""
  return {name: value for name, value in params.items()
          if name != 'masked_patch'}


class _MaskedPatch(nn.Module):
  """The parameters that a ViT has not."""
  config: vit_config.ViTConfig
  num_outputs: int

  def setup(self):
    self.mask = self.param(
        'mask', nn.with_logical_partitioning(
            nn.initializers.normal(0.02), ('norm',)), (self.config.width,))
    # As the classifier: zero at first, and float32 always.
    self.prediction = nn.Dense(
        self.num_outputs, dtype=jnp.float32,
        kernel_init=nn.with_logical_partitioning(
            nn.initializers.zeros, ('width', 'classes')),
        bias_init=nn.with_logical_partitioning(
            nn.initializers.zeros, ('classes',)))

  def replace(
      self, patches: Float[Array, 'batch patches width'],
      sources: Int[Array, 'batch patches'] | None,
  ) -> Float[Array, 'batch patches width']:
    """Returns the embeddings that `sources` puts in each place."""
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
    """Returns the outputs for each token."""
    return self.prediction(tokens.astype(jnp.float32))
