"""Muon: the momentum of a matrix, made orthogonal (arXiv 2502.16982, sec. 2).

An update of which every direction is as long as every other: for a momentum
with singular values S, U S V^T becomes U V^T, approximately, by five steps of a
Newton-Schulz iteration. It is of matrices alone; which axes of a kernel are
rows and which are columns is said here. What is no matrix in a layer has Adam.
"""

import math
from typing import Any

import jax.numpy as jnp
import optax
from optax import contrib

from vit_jax import tree
from vit_jax.optim import layer_decay


def scale_by_muon(
    *, beta: float, rms: float, mu_dtype: jnp.dtype,
) -> optax.GradientTransformation:
  """Returns the transformation of a tree of kernels.

  Args:
    beta: factor of the momentum, which is Nesterov's.
    rms: root mean square of an update's elements, whatever the matrix' shape;
      0.2 is about Adam's, so that learning rates and decays are Adam's too.
    mu_dtype: of the momentum.
  """
  def scale(name: str, update: Any) -> Any:
    # An orthogonal matrix of [rows, columns] has min(rows, columns) singular
    # values of 1: elements whose mean square is 1 / max(rows, columns).
    longer = max(math.prod(update.shape[axis] for axis in group)
                 for group in _axes(name, update))
    return rms * math.sqrt(longer) * update

  return optax.chain(
      contrib.scale_by_muon(
          beta=beta, mu_dtype=mu_dtype,
          weight_dimension_numbers=lambda updates: tree.map_with_name(
              _axes, updates)),
      optax.stateless(lambda updates, _: tree.map_with_name(scale, updates)))


def _axes(name: str, leaf: Any) -> contrib.MuonDimensionNumbers:
  """Returns the axes of a matrix' rows, its input's, and of its columns.

  Layers of a stack are matrices apart, and so are queries, keys and values.
  """
  first = int(name.startswith(layer_decay.STACKED))
  last = len(leaf.shape) - 1
  if name.endswith('qkv_kernel'):  # [layer, width, 3, heads, head_dim]
    return contrib.MuonDimensionNumbers((first,), (last - 1, last))
  return contrib.MuonDimensionNumbers(tuple(range(first, last)), (last,))
