"""Statistics of the first layer: patch embedding filters and positions."""

from jaxtyping import Float
import numpy as np
from sklearn import decomposition

from vit_jax import nearest_neighbours


def filters(
    kernel: Float[np.ndarray, 'height width channels features'], *,
    count: int = 28,
) -> Float[np.ndarray, 'filters height width channels']:
  """Returns principal components of the patch embedding (ViT, figure 7, left).

  At most `features - 1` components of unit length; the largest value of each
  is positive.
  """
  *shape, features = kernel.shape
  points = np.asarray(kernel, np.float64).reshape(-1, features).T
  pca = decomposition.PCA(
      min(count, features - 1, points.shape[1]), svd_solver='full')
  return pca.fit(points).components_.reshape(-1, *shape)


def convolution(
    kernel: Float[np.ndarray, 'height width channels features'], *,
    count: int = 64,
) -> Float[np.ndarray, 'filters height width channels']:
  """Returns the first filters of a ResNet's root convolution.

  Filters are standardised to mean 0 and standard deviation 1, as the network
  applies them (weight standardisation, arXiv:1903.10520).
  """
  found = np.moveaxis(np.asarray(kernel, np.float64)[..., :count], -1, 0)
  found = found - found.mean((1, 2, 3), keepdims=True)
  return found / np.maximum(found.std((1, 2, 3), keepdims=True), 1e-12)


def similarity(
    positions: Float[np.ndarray, 'patches width'], *, grid: tuple[int, int],
) -> Float[np.ndarray, 'rows columns rows columns']:
  """Returns cosines between position embeddings (ViT, figure 7, centre).

  `positions` are for the patches, row by row, without other tokens.
  """
  unit = nearest_neighbours.unit(np.asarray(positions, np.float64))
  return (unit @ unit.T).reshape(*grid, *grid)
