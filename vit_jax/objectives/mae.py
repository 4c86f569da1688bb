"""Masked autoencoder (MAE, arXiv 2111.06377).

The encoder processes a random quarter of the patches. A light decoder gets
their outputs and a mask embedding at all other positions, and predicts the
pixels of the masked patches. No labels are used.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from vit_jax import fields
from vit_jax.exceptions import UserError
from vit_jax.models import model_config
from vit_jax.models import vit
from vit_jax.objectives import masked_patch


@dataclasses.dataclass(frozen=True)
class MaeConfig(masked_patch.MaskingConfig):
  """Section `objective` of a config with `name: 'mae'`.

  Attributes:
    target: pixels of a masked patch, 'normalized' by the mean and deviation of
      the patch or as they are ('patch'); the loss is the squared error.
    masked: fraction of masked patches (figure 5).
    decoder_width: width of the decoder (table 1b). The hidden layer of its MLP
      is four times as wide.
    decoder_depth: layers of the decoder (table 1a).
    decoder_heads: attention heads of the decoder; divides `decoder_width`.
  """
  name: Literal['mae'] = 'mae'
  target: Literal['normalized', 'patch'] = 'normalized'
  masked: float = 0.75
  decoder_width: int = 512
  decoder_depth: int = 8
  decoder_heads: int = 16

  def __post_init__(self):
    fields.check_range(self, 'masked', above=0, end=1)
    fields.check_range(
        self, 'decoder_width', 'decoder_depth', 'decoder_heads', low=1)
    if self.decoder_width % self.decoder_heads or self.decoder_width % 4:
      raise UserError(
          f'decoder_width {self.decoder_width} must divide into '
          f'{self.decoder_heads} heads (decoder_heads) and be a multiple of 4 '
          'for sine-cosine positions.')

  def decoder(self, model: model_config.ModelConfig) -> vit.ViTConfig:
    """Returns the decoder of a model, or raises if it is not supported."""
    if not isinstance(model, vit.ViTConfig) or not model.takes_any_tokens:
      raise UserError(
          'objective mae needs positions that are added once, at the stem, '
          'and attention over any subset of patches of the image, unlike those '
          f'of {model.describe_kind()}. Use another model, or '
          '--config.objective.name=masked_patch.')
    return vit.ViTConfig(
        width=self.decoder_width, depth=self.decoder_depth,
        num_heads=self.decoder_heads, mlp_dim=4 * self.decoder_width,
        patch=model.patch, position='sincos', gelu=(
            'tanh' if model.gelu == 'tanh' else 'exact'),
        layer_norm_epsilon=model.layer_norm_epsilon, dtype=model.dtype,
        attention=model.attention, remat=model.remat, unroll=model.unroll)

  def corrupt(
      self, key: PRNGKeyArray, *, batch_size: int, patches: int,
  ) -> dict[str, Int[Array, 'batch ...']]:
    """Samples visible patches: the first of a random order (appendix A.1)."""
    visible = patches - round(self.masked * patches)
    if not 0 < visible < patches:
      raise UserError(
          f'objective.masked: {self.masked} of {patches} patches leaves '
          f'{visible} visible. Use another fraction or smaller patches.')
    order = jax.random.permutation(
        key, jnp.broadcast_to(jnp.arange(patches), (batch_size, patches)),
        axis=1, independent=True)
    # Position of each patch in the order; masked patches share one embedding.
    sources = jnp.minimum(jnp.argsort(order, axis=1), visible)
    return {'indices': order[:, visible:], 'sources': sources,
            'visible': order[:, :visible]}
