"""What the first layer learned: filters of pixels, and positions."""

from jaxtyping import Float
import numpy as np


def filters(
    kernel: Float[np.ndarray, 'height width channels features'], *,
    count: int = 28,
) -> Float[np.ndarray, 'filters height width channels']:
  """Returns the principal components of the patch embedding (figure 7, left).

  The filters of all features, less their mean, are points in the space of
  patches; these are the directions in which they vary most, the first the
  most. Each has length 1, and the sign that makes its largest value positive.

  Args:
    kernel: of the patch embedding.
    count: components wanted; fewer come back where there are no more.
  """
  *shape, features = kernel.shape
  points = np.asarray(kernel, np.float64).reshape(-1, features).T
  points = points - points.mean(0)
  _, _, components = np.linalg.svd(points, full_matrices=False)
  components = components[:min(count, features - 1)]
  largest = np.abs(components).argmax(-1)
  signs = np.sign(components[np.arange(len(components)), largest])
  return (components * signs[:, None]).reshape(-1, *shape)


def convolution(
    kernel: Float[np.ndarray, 'height width channels features'], *,
    count: int = 64,
) -> Float[np.ndarray, 'filters height width channels']:
  """Returns filters of a ResNet's root, in their order.

  Each is less its mean and of standard deviation 1, as the network applies it
  (weight standardisation, arXiv:1903.10520).

  Args:
    kernel: of the convolution.
    count: filters wanted; fewer come back where there are no more.
  """
  found = np.moveaxis(np.asarray(kernel, np.float64)[..., :count], -1, 0)
  found = found - found.mean((1, 2, 3), keepdims=True)
  return found / np.maximum(found.std((1, 2, 3), keepdims=True), 1e-12)


def similarity(
    positions: Float[np.ndarray, 'patches width'], *, grid: tuple[int, int],
) -> Float[np.ndarray, 'rows columns rows columns']:
  """Returns cosines between position embeddings (figure 7, centre).

  Entry [i, j] is the picture for the patch in row i and column j.

  Args:
    positions: of the patches alone, row by row.
    grid: rows and columns.
  """
  unit = np.asarray(positions, np.float64)
  unit = unit / np.maximum(np.linalg.norm(unit, axis=-1, keepdims=True), 1e-12)
  return (unit @ unit.T).reshape(*grid, *grid)
