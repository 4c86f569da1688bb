"""From images to tokens: patches, and position embeddings for any grid."""

from collections.abc import Callable
from typing import Any, Literal

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.models import vit_config

Method = Literal['linear', 'cubic']
# Last names of the parameters that `resize` changes.
TABLES = ('positions', 'positions_rows', 'positions_columns', 'distances')


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


def strided(shape: tuple[int, int], stride: int) -> tuple[int, int]:
  """Returns rows and columns of a feature map, one place each `stride`."""
  return -(-shape[0] // stride), -(-shape[1] // stride)


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
    embedded = jnp.einsum('brcp,pw->brcw', patches, matrix)
    return embedded + bias.astype(self.dtype)


def positions(
    param: Callable[..., Any],
    config: vit_config.ViTConfig,
    grid: tuple[int, int],
) -> Float[jax.Array, 'tokens width'] | None:
  """Returns an embedding for each token that has one: what is added to them.

  Args:
    param: of the module that holds those to be learned.
    config: says which: see `ViTConfig.position`.
    grid: rows and columns of patches.

  Returns:
    That of the class token if it has one, then the patches', row by row; None
    where nothing is added.
  """
  rows, columns = grid
  prefix = int(config.has_cls and config.position_cls)
  width = config.width

  def learned(name: str, *shape: int) -> Any:
    return param(name, nn.with_logical_partitioning(
        nn.initializers.normal(0.02), (None, 'width')), shape)

  match config.position:
    case 'learned':
      return learned('positions', prefix + rows * columns, width)
    case '2d':
      patches = outer_concat(
          learned('positions_rows', rows, width // 2),
          learned('positions_columns', columns, width // 2))
      return jnp.concatenate(
          [learned('positions_cls', prefix, width), patches]
          if prefix else [patches])
    case 'sincos':
      waves = jnp.asarray(sincos_positions(grid, width))
      return jnp.pad(waves, [(prefix, 0), (0, 0)])
    case _:
      return None


def patch_positions(
    params: Any, config: vit_config.ViTConfig, grid: tuple[int, int],
) -> np.ndarray | None:
  """Returns the position embedding of each patch, [patches, width].

  Where every layer has its own, those of the first; None where nothing is
  added.

  Args:
    params: of the whole model.
    config: of the model.
    grid: rows and columns that they are for.
  """
  if config.position_at == 'layers':
    params = params['encoder']['layers']
    if config.axial:
      params = params['row']

  def read(name: str, *_: Any) -> Any:
    array = jnp.asarray(params[name])
    return array[0] if config.position_at == 'layers' else array

  table = positions(read, config, grid)
  return None if table is None else np.asarray(table)[-grid[0] * grid[1]:]


def add_positions(
    tokens: Float[Array, 'batch tokens width'],
    positions: Float[Array, 'embeddings width'],
    *,
    num_patches: int,
) -> Float[Array, 'batch tokens width']:
  """Adds to the patches' tokens, which are last, and to a class token.

  The class token is the first; registers between it and the patches get none.
  """
  prefix = positions.shape[0] - num_patches
  between = tokens.shape[1] - positions.shape[0]
  gap = jnp.zeros((between, positions.shape[1]), positions.dtype)
  whole = jnp.concatenate([positions[:prefix], gap, positions[prefix:]])
  return tokens + whole.astype(tokens.dtype)


def outer_concat(
    rows: Float[Array, 'rows a'], columns: Float[Array, 'columns b'],
) -> Float[Array, 'places a+b']:
  """Joins each row's embedding with each column's, row by row."""
  shape = (rows.shape[0], columns.shape[0])
  return jnp.concatenate([
      jnp.broadcast_to(rows[:, None], (*shape, rows.shape[1])),
      jnp.broadcast_to(columns[None], (*shape, columns.shape[1])),
  ], axis=-1).reshape(shape[0] * shape[1], -1)


def sincos_positions(
    grid: tuple[int, int], width: int, *, longest: float = 10_000,
) -> Float[np.ndarray, 'places width']:
  """Returns waves of column and row (MoCo v3, arXiv 2104.02057, section 4).

  A quarter of the width each: sine and cosine of the column, then of the row,
  with wavelengths from 2 pi to 2 pi times `longest`.
  """
  quarter = width // 4
  frequencies = longest ** -(np.arange(quarter) / max(quarter - 1, 1))
  row, column = np.meshgrid(*map(np.arange, grid), indexing='ij')
  angles = [place.reshape(-1, 1) * frequencies for place in (column, row)]
  return np.concatenate(
      [wave(a) for a in angles for wave in (np.sin, np.cos)],
      axis=1).astype(np.float32)


def resize(
    name: str,
    array: Float[np.ndarray, '...'],
    *,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    method: Method = 'linear',
) -> Float[np.ndarray, '...']:
  """Returns a parameter as a model of another grid has it.

  Position embeddings are interpolated, those of each layer by themselves:
  `positions` over the grid; `positions_rows` and `positions_columns` along
  their one axis; `distances`, of relative positions, over the distances, with
  the ends aligned, so that the farthest stays the farthest and none stays
  none. Any other parameter, and each where the grid is the same, is given
  back as it is.

  Args:
    name: of the parameter, as 'encoder/layers/positions'.
    array: its values.
    old_grid: rows and columns of patches that they are for.
    new_grid: rows and columns wanted.
    method: see `resize_positions`.

  Raises:
    ValueError: if the array is not that of `old_grid`.
  """
  if tuple(old_grid) == tuple(new_grid):
    return array
  last = name.split('/')[-1]
  match last:
    case 'positions':
      return resize_positions(
          array, old_grid=old_grid, new_grid=new_grid, method=method)
    case 'positions_rows':
      lengths = old_grid[0], new_grid[0]
    case 'positions_columns':
      lengths = old_grid[1], new_grid[1]
    case 'distances':
      lengths = _num_distances(
          name, array.shape[-3], old_grid=old_grid, new_grid=new_grid)
    case _:
      return array
  axis = array.ndim - (3 if last == 'distances' else 2)
  if array.shape[axis] != lengths[0]:
    raise ValueError(
        f'{name} holds {array.shape[axis]} embeddings, but a grid of '
        f'{old_grid[0]}x{old_grid[1]} has {lengths[0]}.')
  return _resize_axis(array, axis, lengths[1], method)


def _num_distances(
    name: str, count: int, *, old_grid: tuple[int, int],
    new_grid: tuple[int, int],
) -> tuple[int, int]:
  """Returns how many distances there are between the tokens of either grid.

  Axial attention is within a row, or within a column; any other has tokens
  before those of the grid, and they remain.
  """
  parts = name.split('/')
  if 'row' in parts or 'column' in parts:
    axis = 1 if 'row' in parts else 0
    return 2 * old_grid[axis] - 1, 2 * new_grid[axis] - 1
  prefix = (count + 1) // 2 - old_grid[0] * old_grid[1]
  if prefix < 0:
    raise ValueError(
        f'{name} holds {count} distances, too few for the tokens of a grid of '
        f'{old_grid[0]}x{old_grid[1]}.')
  return count, 2 * (prefix + new_grid[0] * new_grid[1]) - 1


def resize_positions(
    positions: Float[np.ndarray, '*layers old_tokens width'],
    *,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    method: Method = 'linear',
) -> Float[np.ndarray, '*layers new_tokens width']:
  """Interpolates position embeddings to another grid (ViT, section 3.2).

  Tokens before the grid's (the class token's) are kept as they are.

  Args:
    positions: prefix tokens, then the grid's, row by row; of one layer or of
      several, stacked.
    old_grid: rows and columns of `positions`.
    new_grid: rows and columns wanted.
    method: 'linear' with the corners aligned, as the paper's code; 'cubic'
      with half-pixel centres and anti-aliasing, as timm.

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
  if method == 'linear':
    rows = _align_corners(old_grid[0], new_grid[0])
    columns = _align_corners(old_grid[1], new_grid[1])
    resized = np.einsum('ir,jc,...rcd->...ijd', rows, columns, grid)
  else:
    resized = np.asarray(jax.image.resize(
        grid, (*layers, *new_grid, width), method='cubic'))
  resized = resized.reshape(*layers, new_grid[0] * new_grid[1], width)
  return np.concatenate(
      [positions[..., :prefix, :], resized.astype(positions.dtype)], axis=-2)


def _resize_axis(
    array: Float[np.ndarray, '...'], axis: int, length: int, method: Method,
) -> Float[np.ndarray, '...']:
  """As `resize_positions`, along one axis; the same length changes nothing."""
  old = array.shape[axis]
  if old == length:
    return array
  if method == 'linear':
    resized = np.moveaxis(np.tensordot(
        _align_corners(old, length), array, axes=(1, axis)), 0, axis)
  else:
    shape = (*array.shape[:axis], length, *array.shape[axis + 1:])
    resized = np.asarray(jax.image.resize(array, shape, method='cubic'))
  return resized.astype(array.dtype)


def _align_corners(old: int, new: int) -> Float[np.ndarray, 'new old']:
  """Matrix of linear interpolation that maps first to first, last to last."""
  at = np.linspace(0, old - 1, new)
  low = np.clip(np.floor(at).astype(int), 0, max(old - 2, 0))
  weight = at - low
  matrix = np.zeros((new, old))
  matrix[np.arange(new), low] += 1 - weight
  matrix[np.arange(new), np.minimum(low + 1, old - 1)] += weight
  return matrix
