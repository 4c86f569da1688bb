"""Config of low-rank adapters (LoRA, arXiv 2106.09685)."""

import dataclasses

from vit_jax import fields

ROOT = 'lora'  # Adapters are parameters under it, next to the model's.
# Kernels of layers are stacked along their first axis.
STACKED = 'encoder/layers/'


@dataclasses.dataclass(frozen=True)
class LoraConfig:
  """Section `lora`: low-rank adapters of kernels in `optimizer.frozen`.

  Attributes:
    rank: rank of each adapter; 0 for no adapters.
    alpha: the product of the two matrices is multiplied by alpha / rank.
    kernels: regular expressions of the adapted kernels of the encoder; by
      default the four of attention (arXiv 2106.09685, section 7.1).
  """
  rank: int = 0
  alpha: float = 16.0
  kernels: tuple[str, ...] = (f'{STACKED}.*attention/.*kernel',)

  def __post_init__(self):
    fields.check_range(self, 'rank')
    fields.check_range(self, 'alpha', above=0)
