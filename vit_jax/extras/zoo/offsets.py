"""Interpolation of relative biases to another grid of patches."""

from jaxtyping import Float
import numpy as np


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
