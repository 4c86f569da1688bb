"""Attention rollout: the share of each patch in the output of a model."""

from typing import Any

from jaxtyping import Float
import numpy as np

# After the softmax.
Weights = Float[np.ndarray, 'layers batch heads tokens tokens']


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
  `grid` has rows and columns of patches; class token and registers come before
  them.
  """
  first = num_prefix_tokens(weights, grid)
  mixed = rollout(weights)
  pooled = mixed[:, 0] if pooling == 'cls' else mixed[:, first:].mean(1)
  patches = pooled[:, first:]
  return (patches / patches.sum(-1, keepdims=True)).reshape(-1, *grid)


def num_prefix_tokens(weights: Any, grid: tuple[int, int]) -> int:
  """Returns the number of tokens before those of patches."""
  return weights.shape[-1] - grid[0] * grid[1]
