"""Patch features: principal components as colours, and cosine similarity."""

from jaxtyping import Float
import numpy as np

from vit_jax import nearest_neighbours
from vit_jax.exceptions import UserError

_CLIPPED_PERCENT = 1.0  # Patches clipped at each end.


def colours(
    features: Float[np.ndarray, 'images rows columns width'],
) -> Float[np.ndarray, 'images rows columns 3']:
  """Returns the first three principal components as red, green and blue.

  The components are computed from the patches of all images, so a colour
  has the same meaning in each of them (DINOv2, arXiv 2304.07193, figure 1, but
  the background is kept). The sign of a component makes its largest absolute
  value positive; its range is scaled to 0 ... 1.
  """
  points = features.reshape(-1, features.shape[-1]).astype(np.float64)
  points = points - points.mean(axis=0)
  _, vectors = np.linalg.eigh(points.T @ points)
  values = points @ vectors[:, :-4:-1]
  values *= np.where(values.max(axis=0) < -values.min(axis=0), -1, 1)
  low, high = np.percentile(
      values, (_CLIPPED_PERCENT, 100 - _CLIPPED_PERCENT), axis=0)
  scaled = (values - low) / np.maximum(high - low, 1e-12)
  return scaled.clip(0, 1).reshape(*features.shape[:-1], 3)


def similarity(
    features: Float[np.ndarray, 'images rows columns width'], *,
    row: int, column: int, of_first: bool = False,
) -> Float[np.ndarray, 'images rows columns']:
  """Returns the cosine similarity of each patch to one patch of its image.

  With `of_first`, to that patch of the first image.
  """
  unit = nearest_neighbours.unit(features.astype(np.float64))
  chosen = unit[:1 if of_first else None, row, column]
  return np.einsum('nrcw,nw->nrc', unit, np.broadcast_to(
      chosen, (len(unit), unit.shape[-1])))


def parse_patch(text: str, grid: tuple[int, int]) -> tuple[int, int]:
  """Returns row and column of --patch, from 0; by default of the centre."""
  if not text:
    return grid[0] // 2, grid[1] // 2
  numbers = [int(n) for n in text.split(',') if n.strip().isdigit()]
  if len(numbers) != 2 or text.count(',') != 1 or not all(
      1 <= number <= size for number, size in zip(numbers, grid)):
    raise UserError(
        f'--patch is {text!r}, but must be ROW,COLUMN from 1,1 to '
        f'{grid[0]},{grid[1]}.')
  return numbers[0] - 1, numbers[1] - 1
