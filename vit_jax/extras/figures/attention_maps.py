"""Attention of heads: mean distances, and maps over the patches of an image.

`grid` has rows and columns of patches; class token and registers come before
them.
"""

from jaxtyping import Float
import numpy as np

from vit_jax.inference import attention


def distances(
    grid: tuple[int, int], patch: tuple[float, float],
) -> Float[np.ndarray, 'patches patches']:
  """Returns the distances between patch centres, in pixels like `patch`."""
  rows, columns = np.indices(grid)
  centres = np.stack(
      [rows.ravel() * patch[0], columns.ravel() * patch[1]], axis=1)
  return np.linalg.norm(centres[:, None] - centres[None], axis=-1)


def mean_distance(
    weights: attention.Weights, *, grid: tuple[int, int],
    patch: tuple[float, float],
) -> Float[np.ndarray, 'layers heads']:
  """Returns the mean attention distance in pixels (ViT, figure 7 and D.7).

  The attention-weighted distance between query and key patches, averaged over
  patches and images. Attention to other tokens is removed and the rest
  renormalised.
  """
  first = attention.num_prefix_tokens(weights, grid)
  patches = weights[..., first:, first:]
  sums = patches.sum(-1, keepdims=True, dtype=np.float64)
  # Queries without attention to any patch are left out of the mean.
  shares = np.divide(patches, sums, out=np.zeros(patches.shape), where=sums > 0)
  total = np.einsum('lbhqk,qk->lh', shares, distances(grid, patch))
  return total / np.maximum((sums[..., 0] > 0).sum((1, 3)), 1)


def head_maps(
    weights: Float[np.ndarray, 'layers heads tokens tokens'], *,
    grid: tuple[int, int], pooling: str,
) -> Float[np.ndarray, 'layers heads rows columns']:
  """Returns each head's attention to the patches of an image.

  The pooling 'cls' takes the class token's attention, others the mean over
  patches.
  """
  first = attention.num_prefix_tokens(weights, grid)
  maps = (weights[..., 0, :] if pooling == 'cls' and first
          else weights[..., first:, :].mean(-2))
  return maps[..., first:].reshape(*maps.shape[:2], *grid)
