"""Attention statistics: mean attention distance and attention rollout.

`grid` has rows and columns of patches; class token and registers come before
them.
"""

from typing import Any

from jaxtyping import Float
import numpy as np

# After the softmax.
Weights = Float[np.ndarray, 'layers batch heads tokens tokens']


def distances(
    grid: tuple[int, int], patch: tuple[float, float],
) -> Float[np.ndarray, 'patches patches']:
  """Returns the distances between patch centres, in pixels like `patch`."""
  rows, columns = np.indices(grid)
  centres = np.stack(
      [rows.ravel() * patch[0], columns.ravel() * patch[1]], axis=1)
  return np.linalg.norm(centres[:, None] - centres[None], axis=-1)


def mean_distance(
    weights: Weights, *, grid: tuple[int, int], patch: tuple[float, float],
) -> Float[np.ndarray, 'layers heads']:
  """Returns the mean attention distance in pixels (ViT, figure 7 and D.7).

  The attention-weighted distance between query and key patches, averaged over
  patches and images. Attention to other tokens is removed and the rest
  renormalised.
  """
  first = _num_prefix_tokens(weights, grid)
  patches = weights[..., first:, first:]
  sums = patches.sum(-1, keepdims=True, dtype=np.float64)
  # Queries without attention to any patch are left out of the mean.
  shares = np.divide(
      patches, sums, out=np.zeros(patches.shape), where=sums > 0)
  total = np.einsum('lbhqk,qk->lh', shares, distances(grid, patch))
  return total / np.maximum((sums[..., 0] > 0).sum((1, 3)), 1)


def rollout(weights: Weights) -> Float[np.ndarray, 'batch tokens tokens']:
  """Returns the share of each input token in each output token.

  Attention rollout (Abnar and Zuidema, arXiv:2005.00928, section 3; ViT,
  figure 6): averages heads, adds the identity for the residual path, and
  multiplies the layers. Rows sum to one.
  """
  mixed = weights.mean(2, dtype=np.float64)
  mixed = 0.5 * mixed + 0.5 * np.eye(weights.shape[-1])
  mixed /= mixed.sum(-1, keepdims=True)
  result = mixed[0]
  for layer in mixed[1:]:
    result = layer @ result
  return result


def rollout_map(
    weights: Weights, *, grid: tuple[int, int], pooling: str,
) -> Float[np.ndarray, 'batch rows columns']:
  """Returns the share of each patch in the pooled output; sums to one.

  The pooling 'cls' follows the class token, others the mean of the patches.
  """
  first = _num_prefix_tokens(weights, grid)
  mixed = rollout(weights)
  pooled = mixed[:, 0] if pooling == 'cls' else mixed[:, first:].mean(1)
  patches = pooled[:, first:]
  return (patches / patches.sum(-1, keepdims=True)).reshape(-1, *grid)


def head_maps(
    weights: Float[np.ndarray, 'layers heads tokens tokens'], *,
    grid: tuple[int, int], pooling: str,
) -> Float[np.ndarray, 'layers heads rows columns']:
  """Returns each head's attention to the patches of an image.

  The pooling 'cls' takes the class token's attention, others the mean over
  patches.
  """
  first = _num_prefix_tokens(weights, grid)
  maps = (weights[..., 0, :] if pooling == 'cls' and first
          else weights[..., first:, :].mean(-2))
  return maps[..., first:].reshape(*maps.shape[:2], *grid)


def _num_prefix_tokens(weights: Any, grid: tuple[int, int]) -> int:
  return weights.shape[-1] - grid[0] * grid[1]
