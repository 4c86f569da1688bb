"""Position embeddings, and their interpolation to another grid of patches."""

from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np

# Methods of interpolation to another grid; see `resize_positions`.
Interpolation = Literal[
    'linear', 'bilinear', 'bilinear_sharp', 'cubic', 'bicubic',
    'bicubic_offset', 'linear_square', 'bilinear_square',
    'bilinear_sharp_square', 'cubic_square', 'bicubic_square']


def grid_shape(
    image_shape: tuple[int, ...], patch: tuple[int, int],
) -> tuple[int, int]:
  """Returns rows and columns of patches in an image (height, width).

  Raises:
    ValueError: if the image does not divide into patches.
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


def embeddings(
    param: Callable[..., Any], kind: str, grid: tuple[int, int], width: int, *,
    num_prefix: int,
) -> Float[jax.Array, 'tokens width'] | None:
  """Returns the position embeddings to add to the tokens.

  Args:
    param: `self.param` of the module that owns learned embeddings.
    kind: 'learned' (1-D), 'sincos', or 'none', which returns None.
    grid: rows and columns of patches.
    width: width of the tokens.
    num_prefix: tokens before the patches, which are in row-major order. Those
      of 'sincos' are zero.
  """
  if kind == 'learned':
    return learned(param, 'positions', num_prefix + grid[0] * grid[1], width)
  if kind == 'sincos':
    return jnp.pad(jnp.asarray(sincos_positions(grid, width)),
                   [(num_prefix, 0), (0, 0)])
  return None


def learned(
    param: Callable[..., Any], name: str, *shape: int,
) -> Float[jax.Array, 'positions width']:
  """Returns a table of learned embeddings."""
  return param(name, nn.with_logical_partitioning(
      nn.initializers.normal(0.02), (None, 'width')), shape)


def sincos_positions(
    grid: tuple[int, int], width: int, *, longest: float = 10_000,
) -> Float[np.ndarray, 'positions width']:
  """Fixed 2-D sine-cosine embeddings (MoCo v3, arXiv 2104.02057, section 4).

  Sine and cosine of the column, then of the row, take a quarter of the width
  each, with wavelengths from 2 pi to 2 pi * `longest`.
  """
  quarter = width // 4
  frequencies = longest ** -(np.arange(quarter) / max(quarter - 1, 1))
  row, column = np.meshgrid(*map(np.arange, grid), indexing='ij')
  angles = [axis.reshape(-1, 1) * frequencies for axis in (column, row)]
  return np.concatenate(
      [wave(a) for a in angles for wave in (np.sin, np.cos)],
      axis=1).astype(np.float32)


def resize_positions(
    positions: Float[Any, '*layers old_tokens width'],
    *,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    method: Interpolation = 'linear',
) -> Float[Any, '*layers new_tokens width']:
  """Interpolates position embeddings to another grid (ViT, section 3.2).

  Embeddings of prefix tokens, such as the class token, are unchanged.

  Args:
    positions: embeddings of prefix tokens, then of the grid in row-major order,
      optionally stacked over layers; in a compiled function not 'linear'.
    old_grid: rows and columns of `positions`.
    new_grid: rows and columns of the result.
    method: 'linear' with aligned corners, as in the paper's code; the others
      have half-pixel centres. With anti-aliasing: 'bilinear' (FlexiViT) and
      'cubic' (timm). Without: 'bilinear_sharp' (FlexiViT and RADIO in timm);
      'bicubic' (Hugging Face), sharper than 'cubic'; and 'bicubic_offset',
      which adds 0.1 to the new size that gives the scale of either axis (DINO,
      DINOv2 and iBOT in Meta's code). '_square' after a method keeps the aspect
      ratio: a square as long as the longer side is cropped (RADIO).

  Raises:
    ValueError: if `positions` holds fewer tokens than `old_grid`.
  """
  *layers, tokens, width = positions.shape
  prefix = tokens - old_grid[0] * old_grid[1]
  if prefix < 0:
    raise ValueError(
        f'{tokens} position embeddings do not cover a grid of '
        f'{old_grid[0]}x{old_grid[1]}.')
  if tuple(old_grid) == tuple(new_grid):
    return positions
  grid = positions[..., prefix:, :].reshape(*layers, *old_grid, width)
  resized = interpolate(grid, new_grid, method)
  module: Any = np if isinstance(positions, np.ndarray) else jnp
  return module.concatenate(
      [positions[..., :prefix, :], resized.reshape(*layers, -1, width)],
      axis=-2)


def interpolate(
    grid: Float[Any, '*layers rows columns width'], new_grid: tuple[int, int],
    method: str,
) -> Float[Any, '*layers new_rows new_columns width']:
  """Interpolates a grid of embeddings; see `resize_positions`."""
  shape = (*grid.shape[:-3], *new_grid, grid.shape[-1])
  if method == 'linear':
    from scipy import ndimage  # As in the paper's code; takes 0.2 s to import.
    factors = [new / old for new, old in zip(shape, grid.shape)]
    return ndimage.zoom(
        grid.astype(np.float64), factors, order=1, mode='nearest',
    ).astype(grid.dtype)
  if method == 'bilinear':
    return jax.image.resize(grid, shape, method)
  from vit_jax import registry  # The model itself needs no names.
  return registry.load(registry.INTERPOLATE)(grid, new_grid, method)
