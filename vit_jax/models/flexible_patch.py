"""Patch embeddings of another patch size (FlexiViT, arXiv 2212.08013)."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float
import numpy as np


def resize_filters(kernel: Any, patch: tuple[int, int]) -> Any:
  """Resizes patch filters by pseudo-inverse (PI-resize, arXiv 2212.08013).

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
