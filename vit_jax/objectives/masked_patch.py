"""Masked patch prediction (section 4.6 and appendix B.1.2 of the paper).

Half of the patch embeddings of an image are corrupted, and the output token of
each corrupted patch predicts its pixels. No labels are used.

Choices where the paper is not explicit: "a random other patch embedding" comes
from the same image, so that images stay independent of each other and of the
devices; and every image has the same number of corrupted patches of each kind,
so that predictions have a fixed shape.
"""

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from vit_jax.models import vit_config


@dataclasses.dataclass(frozen=True)
class MaskedPatchConfig:
  """Section `objective` of a config with `name: 'masked_patch'`.

  Attributes:
    name: 'masked_patch'.
    target: predicted values of a corrupted patch: 'mean_color' with 3 bits per
      channel (one of 512 classes), 'downsampled' to 4x4 such colours, or the
      whole 'patch' with a squared error.
    corrupted: fraction of corrupted patches; the paper also tried 0.15.
    shares: fractions of corrupted patches whose embedding is replaced by the
      mask embedding, replaced by another patch, and kept.
  """
  name: Literal['masked_patch'] = 'masked_patch'
  target: Literal['mean_color', 'downsampled', 'patch'] = 'mean_color'
  corrupted: float = 0.5
  shares: tuple[float, float, float] = (0.8, 0.1, 0.1)

  def __post_init__(self):
    if not 0 < self.corrupted <= 1:
      raise ValueError(
          'corrupted must be a fraction above 0 and at most 1, but is '
          f'{self.corrupted}.')
    if min(self.shares) < 0 or not math.isclose(sum(self.shares), 1):
      raise ValueError(
          'shares must be three fractions (mask, other patch, kept) '
          f'with sum 1, but are {self.shares}.')

  def decoder(self, model: vit_config.ViTConfig) -> None:
    """Returns None: predictions are made by a single layer."""
    del model

  def corrupt(
      self, key: PRNGKeyArray, *, batch_size: int, patches: int,
  ) -> dict[str, Int[Array, 'batch ...']]:
    """Samples the inputs of `models.masked_patch.MaskedPatch` of a batch."""
    masked, swapped, kept = counts(self, patches)
    order_key, other_key = jax.random.split(key)
    own = jnp.broadcast_to(jnp.arange(patches), (batch_size, patches))
    indices = jax.random.permutation(
        order_key, own, axis=1, independent=True)[:, :masked + swapped + kept]
    # Any other patch: an offset of 1 to patches - 1, modulo patches.
    step = jax.random.randint(
        other_key, (batch_size, swapped), 1, max(patches, 2))
    at_swap = indices[:, masked:masked + swapped]
    rows = jnp.arange(batch_size)[:, None]
    sources = own.at[rows, indices[:, :masked]].set(patches)
    sources = sources.at[rows, at_swap].set((at_swap + step) % patches)
    return {'indices': indices, 'sources': sources}


def counts(config: MaskedPatchConfig, patches: int) -> tuple[int, int, int]:
  """Returns the numbers of masked, swapped and kept patches of an image.

  Raises:
    ValueError: without corrupted patches, or without another patch to swap.
  """
  corrupted = round(config.corrupted * patches)
  if not corrupted:
    raise ValueError(
        f'objective.corrupted: {config.corrupted} of {patches} patches rounds '
        'to 0. Use a larger fraction or smaller patches.')
  masked = round(config.shares[0] * corrupted)
  swapped = min(round(config.shares[1] * corrupted), corrupted - masked)
  if swapped and patches < 2:
    raise ValueError(
        'objective.shares: an image of one patch has no other patch to swap '
        'with. Use smaller patches.')
  return masked, swapped, corrupted - masked - swapped
