"""Statistics of the first layer: patch embedding filters and positions."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float
import numpy as np
from sklearn import decomposition

from vit_jax import nearest_neighbours
from vit_jax.models import ablations
from vit_jax.models import vit


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


def patch_positions(
    params: Any, config: vit.ViTConfig, grid: tuple[int, int],
) -> np.ndarray | None:
  """Returns the position embedding of each patch, [patches, width].

  Returns the first layer's if each layer has its own, and None without
  additive position embeddings. `params` are those of any ViT.
  """
  in_layers = getattr(config, 'position_at', 'stem') == 'layers'
  if in_layers:
    params = params['encoder']['layers']
    if config.axial:
      params = params['row']

  def read(name: str, *_: Any) -> Any:
    array = jnp.asarray(params[name])
    return array[0] if in_layers else array

  table = ablations.embeddings(read, config, grid)
  return None if table is None else np.asarray(table)[-grid[0] * grid[1]:]
