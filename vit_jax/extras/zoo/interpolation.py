"""Interpolation of position embeddings in other codebases, and of filters."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np

from vit_jax.models import ablations
from vit_jax.models import positions


def interpolate(
    grid: Float[Any, '*layers rows columns width'], new_grid: tuple[int, int],
    method: str,
) -> Float[Any, '*layers new_rows new_columns width']:
  """Interpolates a grid of embeddings; see `positions.resize_positions`."""
  plain = method.removesuffix('_square')
  if plain != method:
    rows, columns = new_grid
    side = max(new_grid)
    return positions.interpolate(
        grid, (side, side), plain)[..., :rows, :columns, :]
  if method.startswith('bicubic'):
    offset = 0.1 if method == 'bicubic_offset' else 0.0
    for axis, new in zip((-3, -2), new_grid):
      old = grid.shape[axis]
      if old != new or offset:
        grid = jnp.moveaxis(jnp.tensordot(
            _bicubic_weights(old, new, offset), grid, (1, axis),
            precision='highest'), 0, axis)
    return grid
  return jax.image.resize(
      grid, (*grid.shape[:-3], *new_grid, grid.shape[-1]),
      method=method.removesuffix('_sharp'),
      antialias=method != 'bilinear_sharp')


def resize_lines(
    name: str, array: Float[Any, '*layers old_positions width'], *,
    old_grid: tuple[int, int], new_grid: tuple[int, int], method: str,
) -> Float[Any, '*layers new_positions width']:
  """Interpolates embeddings of rows or columns along their axis."""
  plain: Any = method.removesuffix('_square')
  length = new_grid[name == 'positions_columns']
  if plain != method:
    new_grid = (max(new_grid),) * 2
  return ablations.resize_lines(
      name, array, old_grid=old_grid, new_grid=new_grid,
      method=plain)[..., :length, :]


def _bicubic_weights(
    old: int, new: int, offset: float) -> Float[np.ndarray, 'new old']:
  """Returns weights of Keys' kernel with a = -0.75, as PyTorch's 'bicubic'."""
  centres = (np.arange(new) + 0.5) * old / (new + offset) - 0.5
  taps = np.floor(centres)[:, None] + np.arange(-1, 3)
  d, a = np.abs(centres[:, None] - taps), -0.75
  values = np.where(
      d <= 1, ((a + 2) * d - (a + 3)) * d**2 + 1,
      a * (((d - 5) * d + 8) * d - 4))
  weights = np.zeros((new, old), np.float32)
  columns = taps.astype(int).clip(0, old - 1)
  np.add.at(weights, (np.arange(new)[:, None], columns), values)
  return weights


def resize_filters(kernel: Any, patch: tuple[int, int]) -> Any:
  """Resizes patch filters by pseudo-inverse (FlexiViT, arXiv 2212.08013).

  With B the matrix of bilinear resizing, the new filters (B^T)^+ w give
  the resized patches B x the embeddings x^T w of the patches x, if patches are
  enlarged, and the nearest ones otherwise (section 3.4, equations 3 to 5).

  Args:
    kernel: [height, width, channels, embedding]; a NumPy array is resized in
      float64.
    patch: height and width of the result.
  """
  if kernel.shape[:2] == tuple(patch):
    return kernel
  # Separable: the pseudo-inverse of a Kronecker product is that of its factors.
  matrices = [np.linalg.pinv(_bilinear(old, new).T)
              for old, new in zip(kernel.shape[:2], patch)]
  if isinstance(kernel, np.ndarray):
    return np.einsum('ph,qw,hwcd->pqcd', *matrices,
                     kernel.astype(np.float64)).astype(kernel.dtype)
  return jnp.einsum('ph,qw,hwcd->pqcd', *(
      jnp.asarray(matrix, kernel.dtype) for matrix in matrices), kernel,
                    precision='highest')


def _bilinear(old: int, new: int) -> Float[np.ndarray, 'new old']:
  """Returns the matrix of bilinear resizing with half-pixel centres."""
  at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
  return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(old)))
