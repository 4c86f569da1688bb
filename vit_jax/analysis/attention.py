"""Where a trained ViT looks: mean attention distance, and attention rollout."""

from typing import Any

from jaxtyping import Float
import numpy as np

Weights = Float[np.ndarray, 'layers batch heads tokens tokens']


def distances(
    grid: tuple[int, int], patch: tuple[float, float],
) -> Float[np.ndarray, 'patches patches']:
  """Returns how far patches are from each other, centre to centre, in pixels.

  Args:
    grid: rows and columns.
    patch: height and width of a patch, in pixels.
  """
  rows, columns = grid
  y, x = np.meshgrid(
      np.arange(rows) * patch[0], np.arange(columns) * patch[1], indexing='ij')
  places = np.stack([y.ravel(), x.ravel()], axis=1)
  return np.linalg.norm(places[:, None] - places[None], axis=-1)


def mean_distance(
    weights: Weights, *, grid: tuple[int, int], patch: tuple[float, float],
) -> Float[np.ndarray, 'layers heads']:
  """Returns how far each head looks, in pixels (figure 7, right, and D.7).

  The distance between a patch and those it attends to, weighted by the
  attention, averaged over patches and images. Class token and registers are at
  no place: they are left out, and what remains of each row is made to sum to
  one.

  Args:
    weights: attention after the softmax; class token and registers first.
    grid: rows and columns of the patches.
    patch: height and width of a patch, in pixels.

  Raises:
    ValueError: if there are fewer tokens than patches.
  """
  among = weights[..., _first(weights, grid):, _first(weights, grid):]
  sums = among.sum(-1, keepdims=True, dtype=np.float64)
  # A patch that looks at no patch at all says nothing of a distance.
  share = np.divide(among, sums, out=np.zeros(among.shape), where=sums > 0)
  far = np.einsum('lbhqk,qk->lbhq', share, distances(grid, patch))
  looks = sums[..., 0] > 0
  return far.sum((1, 3)) / np.maximum(looks.sum((1, 3)), 1)


def rollout(
    weights: Weights,
) -> Float[np.ndarray, 'batch tokens tokens']:
  """Returns how much of each input token is in each output token.

  Attention rollout (Abnar and Zuidema, arXiv:2005.00928, section 3), as figure
  6 uses it: the heads are averaged, the residual path adds the identity, and
  the layers are multiplied. Each row sums to one.

  Args:
    weights: attention after the softmax.
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
  """Returns how much of each patch is in what the head sees; sums to one.

  Args:
    weights: attention after the softmax; class token and registers first.
    grid: rows and columns of the patches.
    pooling: 'cls' follows the class token; any other the mean of the patches.

  Raises:
    ValueError: if there are fewer tokens than patches.
  """
  first = _first(weights, grid)
  if pooling == 'cls' and not first:
    raise ValueError('There is no class token to follow: all tokens are '
                     'patches. Use another pooling.')
  mixed = rollout(weights)
  seen = mixed[:, 0] if pooling == 'cls' else mixed[:, first:].mean(1)
  patches = seen[:, first:]
  return (patches / patches.sum(-1, keepdims=True)).reshape(-1, *grid)


def head_maps(
    weights: Float[np.ndarray, 'layers heads tokens tokens'], *,
    grid: tuple[int, int], pooling: str,
) -> Float[np.ndarray, 'layers heads rows columns']:
  """Returns where each head looks in an image.

  Args:
    weights: attention after the softmax; class token and registers first.
    grid: rows and columns of the patches.
    pooling: 'cls' looks from the class token; any other from all patches, on
      average.

  Raises:
    ValueError: if there are fewer tokens than patches.
  """
  first = _first(weights, grid)
  looks = (weights[..., 0, :] if pooling == 'cls' and first
           else weights[..., first:, :].mean(-2))
  return looks[..., first:].reshape(*looks.shape[:2], *grid)


def _first(weights: Any, grid: tuple[int, int]) -> int:
  """Returns how many tokens come before the patches."""
  first = weights.shape[-1] - grid[0] * grid[1]
  if first < 0:
    raise ValueError(
        f'The attention is of {weights.shape[-1]} tokens, fewer than the '
        f'{grid[0]}x{grid[1]} patches.')
  return first
