"""From images to tokens: patches, and position embeddings for any grid."""

from typing import Literal

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

Method = Literal['linear', 'cubic']


def grid_shape(
    image_shape: tuple[int, int], patch: tuple[int, int],
) -> tuple[int, int]:
  """Returns rows and columns of patches in an image (height, width).

  Raises:
    ValueError: if the image does not divide into patches; the message names
      the nearest sizes that do.
  """
  if any(size % p or size == 0 for size, p in zip(image_shape, patch)):
    below = [size // p * p for size, p in zip(image_shape, patch)]
    above = [-(-size // p) * p or p for size, p in zip(image_shape, patch)]
    sizes = [f'{h}x{w}' for h, w in dict.fromkeys([tuple(below), tuple(above)])
             if h and w]
    raise ValueError(
        f'An image of {image_shape[0]}x{image_shape[1]} does not divide into '
        f'patches of {patch[0]}x{patch[1]}. Nearest sizes that do: '
        f'{" and ".join(sizes)}.')
  return image_shape[0] // patch[0], image_shape[1] // patch[1]


class PatchEmbedding(nn.Module):
  """Cuts images into patches and projects each (equation 1: x_p E).

  A convolution whose stride is its kernel, written as the matrix product it
  is: every backend runs that at its full rate. The kernel keeps the shape of a
  convolution, [patch_height, patch_width, channels, width].
  """
  patch: tuple[int, int]
  width: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(
      self, images: Float[Array, 'batch height width channels'],
  ) -> Float[Array, 'batch rows columns embedding']:
    rows, columns = grid_shape(
        (images.shape[1], images.shape[2]), self.patch)
    kernel = self.param(
        'kernel',
        nn.with_logical_partitioning(
            nn.initializers.lecun_normal(), (None, None, None, 'width')),
        (*self.patch, images.shape[-1], self.width))
    bias = self.param(
        'bias',
        nn.with_logical_partitioning(nn.initializers.zeros, ('norm',)),
        (self.width,))
    patches = einops.rearrange(
        images.astype(self.dtype), 'b (r p) (c q) ch -> b r c (p q ch)',
        r=rows, c=columns)
    matrix = kernel.reshape(-1, self.width).astype(self.dtype)
    return patches @ matrix + bias.astype(self.dtype)


def resize_positions(
    positions: Float[np.ndarray, 'old_tokens width'],
    *,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    method: Method = 'linear',
) -> Float[np.ndarray, 'new_tokens width']:
  """Interpolates position embeddings to another grid (ViT, section 3.2).

  Tokens before the grid's (the class token's) are kept as they are.

  Args:
    positions: prefix tokens, then the grid's, row by row.
    old_grid: rows and columns of `positions`.
    new_grid: rows and columns wanted.
    method: 'linear' with the corners aligned, as the paper's code; 'cubic'
      with half-pixel centres and anti-aliasing, as timm.

  Raises:
    ValueError: if `positions` holds fewer tokens than `old_grid`.
  """
  prefix = positions.shape[0] - old_grid[0] * old_grid[1]
  if prefix < 0:
    raise ValueError(
        f'{positions.shape[0]} position embeddings do not cover a grid of '
        f'{old_grid[0]}x{old_grid[1]}.')
  if tuple(old_grid) == tuple(new_grid):
    return positions
  grid = positions[prefix:].reshape(*old_grid, -1)
  if method == 'linear':
    rows = _align_corners(old_grid[0], new_grid[0])
    columns = _align_corners(old_grid[1], new_grid[1])
    resized = np.einsum('ir,jc,rcd->ijd', rows, columns, grid)
  else:
    resized = np.asarray(jax.image.resize(
        grid, (*new_grid, grid.shape[-1]), method='cubic'))
  resized = resized.reshape(new_grid[0] * new_grid[1], -1)
  return np.concatenate(
      [positions[:prefix], resized.astype(positions.dtype)])


def _align_corners(old: int, new: int) -> Float[np.ndarray, 'new old']:
  """Matrix of linear interpolation that maps first to first, last to last."""
  at = np.linspace(0, old - 1, new)
  low = np.clip(np.floor(at).astype(int), 0, max(old - 2, 0))
  weight = at - low
  matrix = np.zeros((new, old))
  matrix[np.arange(new), low] += 1 - weight
  matrix[np.arange(new), np.minimum(low + 1, old - 1)] += weight
  return matrix
