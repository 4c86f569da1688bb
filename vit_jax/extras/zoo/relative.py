"""Biases of attention logits by the relative position of query and key."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.extras.zoo import backbone_config
from vit_jax.models import layers


class RelativeBias(nn.Module):
  """Bias of each head, query and key, by their offset in rows and columns.

  'relative_2d' learns a table of all offsets (BEiT, arXiv 2106.08254, section
  3.1; arXiv 2103.14030, equation 4), which starts at zero. 'relative_mlp'
  computes it from the logarithms of the offsets, without biases of tokens
  before the patches (timm's variant of arXiv 2111.09883, equation 4).
  """
  config: backbone_config.BackboneConfig
  grid: tuple[int, int]

  @nn.compact
  def __call__(self) -> Float[Array, '1 heads tokens tokens']:
    c, (rows, columns) = self.config, self.grid
    axes = [np.arange(1 - size, size) for size in self.grid]
    offsets = np.stack(np.meshgrid(*axes, indexing='ij'), axis=-1)
    count = offsets[..., 0].size
    if c.position == 'relative_mlp':
      inputs = np.sign(offsets) * np.log1p(np.abs(offsets, dtype=np.float32))
      hidden = nn.relu(layers.dense(
          c.position_mlp_dim, (None, None), 'hidden', dtype=jnp.float32)(
              inputs.reshape(-1, 2)))
      table = layers.dense(
          c.num_heads, (None, 'heads'), 'out', dtype=jnp.float32)(hidden)
    else:
      table = self.param(
          'offsets', nn.with_logical_partitioning(
              nn.initializers.zeros, (None, 'heads')),
          (count + c.num_prefix_offsets, c.num_heads))
    table, others = jnp.split(table, [count])
    # Products with one-hot matrices: the gradient of a gather would be a
    # scatter of all pairs of tokens, which is slow on accelerators.
    bias = jnp.einsum(
        'ijh,rsi,ctj->hrcst', table.reshape(*offsets.shape[:2], c.num_heads),
        _one_hot(rows), _one_hot(columns), precision='highest')
    bias = jnp.pad(bias.reshape(c.num_heads, rows * columns, -1), [
        (0, 0), (c.num_prefix, 0), (c.num_prefix, 0)])
    if len(others):
      query = jnp.arange(bias.shape[-1])[:, None] < c.num_prefix
      key = query.T
      kinds = jnp.stack([query & ~key, ~query & key, query & key])
      bias += jnp.einsum(
          'kh,kqt->hqt', others, kinds.astype(bias.dtype), precision='highest')
    return bias[None]


def _one_hot(size: int) -> Float[np.ndarray, 'queries keys offsets']:
  """Returns the one-hot offsets of all pairs of positions."""
  at = np.arange(size)
  return np.eye(2 * size - 1, dtype=np.float32)[at[:, None] - at + size - 1]
