"""Position embeddings; interpolation of these and of patch filters."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.models import vit_config

# Last path components of the parameters that `resize` interpolates.
POSITION_PARAMS = (
    'positions', 'positions_rows', 'positions_columns', 'distances', 'offsets')


def position_embeddings(
    param: Callable[..., Any],
    config: vit_config.ViTConfig,
    grid: tuple[int, int],
) -> Float[jax.Array, 'tokens width'] | None:
  """Returns the position embeddings to add to the tokens.

  Args:
    param: `self.param` of the module that owns learned embeddings.
    config: see `ViTConfig.position`.
    grid: rows and columns of patches.

  Returns:
    The embeddings of class and distillation token if they have any, then those
    of the patches in row-major order; None without additive embeddings.
  """
  rows, columns = grid
  prefix = config.num_class_tokens * config.position_cls
  width = config.width

  def learned(name: str, *shape: int) -> Any:
    return param(name, nn.with_logical_partitioning(
        nn.initializers.normal(0.02), (None, 'width')), shape)

  match config.position:
    case 'learned':
      return learned('positions', prefix + rows * columns, width)
    case '2d' | 'factorized':
      each = width // 2 if config.position == '2d' else width
      of_row = jnp.repeat(
          learned('positions_rows', rows, each), columns, axis=0)
      of_column = jnp.tile(
          learned('positions_columns', columns, each), (rows, 1))
      patches = jnp.concatenate([of_row, of_column], axis=1) if (
          config.position == '2d') else of_row + of_column
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

  Returns the first layer's if each layer has its own, and None without
  additive position embeddings.
  """
  if config.position_at == 'layers':
    params = params['encoder']['layers']
    if config.axial:
      params = params['row']

  def read(name: str, *_: Any) -> Any:
    array = jnp.asarray(params[name])
    return array[0] if config.position_at == 'layers' else array

  table = position_embeddings(read, config, grid)
  return None if table is None else np.asarray(table)[-grid[0] * grid[1]:]


def add_positions(
    tokens: Float[Array, 'batch tokens width'],
    positions: Float[Array, 'embeddings width'],
    *,
    num_patches: int,
) -> Float[Array, 'batch tokens width']:
  """Adds position embeddings to the class token and the patch tokens.

  Class tokens are first and patches are last; registers between them have no
  positions.
  """
  prefix = positions.shape[0] - num_patches
  between = tokens.shape[1] - positions.shape[0]
  gap = jnp.zeros((between, positions.shape[1]), positions.dtype)
  whole = jnp.concatenate([positions[:prefix], gap, positions[prefix:]])
  return tokens + whole.astype(tokens.dtype)


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


def resize(
    name: str,
    array: Float[np.ndarray, '...'],
    *,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    method: vit_config.Interpolation = 'linear',
) -> Float[np.ndarray, '...']:
  """Interpolates a parameter to another grid of patches.

  Position embeddings are interpolated separately for each layer: `positions`
  over the grid, `positions_rows` and `positions_columns` along their axis;
  `offsets` as in `resize_offsets`, whatever the `method`.
  Other parameters are returned unchanged. `name` is a path such as
  'encoder/layers/positions'.

  Raises:
    ValueError: if the array does not fit `old_grid`, or has relative positions.
  """
  if tuple(old_grid) == tuple(new_grid):
    return array
  match last := name.split('/')[-1]:
    case 'positions':
      return resize_positions(
          array, old_grid=old_grid, new_grid=new_grid, method=method)
    case 'positions_rows' | 'positions_columns':
      axis = ('positions_rows', 'positions_columns').index(last)
      plain: Any = method.removesuffix('_square')
      length = new_grid[axis] if plain == method else max(new_grid)
      return resize_positions(
          array, old_grid=(old_grid[axis], 1), new_grid=(length, 1),
          method=plain)[..., :new_grid[axis], :]
    case 'offsets':
      return resize_offsets(array, old_grid=old_grid, new_grid=new_grid)
    case 'distances':
      raise ValueError(
          f'{name}: relative positions are distances in a sequence of patches '
          f'of a grid of {old_grid[0]}x{old_grid[1]}, and cannot be '
          f'interpolated to {new_grid[0]}x{new_grid[1]}. Keep the resolution '
          'of the checkpoint.')
    case _:
      return array


def resize_positions(
    positions: Float[Any, '*layers old_tokens width'],
    *,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    method: vit_config.Interpolation = 'linear',
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
  rows, columns = new_grid
  plain = method.removesuffix('_square')
  whole = new_grid if plain == method else (max(new_grid),) * 2
  resized = _interpolate(grid, (*layers, *whole, width), plain)[
      ..., :rows, :columns, :]
  module: Any = np if isinstance(positions, np.ndarray) else jnp
  return module.concatenate(
      [positions[..., :prefix, :], resized.reshape(*layers, -1, width)],
      axis=-2)


def _interpolate(
    array: Float[Any, '...'], shape: tuple[int, ...], method: str,
) -> Float[Any, '...']:
  if method == 'linear':
    from scipy import ndimage  # As in the paper's code; takes 0.2 s to import.
    factors = [new / old for new, old in zip(shape, array.shape)]
    return ndimage.zoom(
        array.astype(np.float64), factors, order=1, mode='nearest',
    ).astype(array.dtype)
  if method.startswith('bicubic'):
    offset = 0.1 if method == 'bicubic_offset' else 0.0
    for axis in (-3, -2):
      old, new = array.shape[axis], shape[axis]
      if old != new or offset:
        array = jnp.moveaxis(jnp.tensordot(
            _bicubic_weights(old, new, offset), array, (1, axis),
            precision='highest'), 0, axis)
    return array
  return jax.image.resize(
      array, shape, method=method.removesuffix('_sharp'),
      antialias=method != 'bilinear_sharp')


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


def resize_offsets(
    offsets: Float[np.ndarray, '*stacked entries heads'], *,
    old_grid: tuple[int, int], new_grid: tuple[int, int],
) -> Float[np.ndarray, '*stacked new_entries heads']:
  """Interpolates a table of offsets to another grid.

  As in BEiT's code, the old offsets are spread out in a geometric progression,
  since those of near patches matter most. The interpolation is linear, as in
  timm.
  """
  *stacked, _, heads = offsets.shape
  old = [2 * size - 1 for size in old_grid]
  table, others = np.split(offsets, [old[0] * old[1]], axis=-2)
  table = np.einsum(
      '...ijh,ki,lj->...klh', table.reshape(*stacked, *old, heads),
      *map(_offset_weights, old_grid, new_grid))
  return np.concatenate([
      table.reshape(*stacked, -1, heads), others], axis=-2, dtype=offsets.dtype)


def _offset_weights(old: int, new: int) -> Float[np.ndarray, 'new old']:
  """Returns the matrix that interpolates the offsets of one axis."""
  low, high = 1.01, 1.5  # Bisection of the ratio, as in BEiT's code.
  while high - low > 1e-6:
    ratio = (low + high) / 2
    steps = ratio ** np.arange(old - 1)
    low, high = (low, ratio) if steps.sum() > new - 1 else (ratio, high)
  points = np.cumsum(steps)
  points = np.concatenate([-points[::-1], [0], points])
  return np.stack([np.interp(np.arange(1 - new, new), points, row)
                   for row in np.eye(2 * old - 1)], axis=1)


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
