"""Muon: orthogonalised momentum of matrices (arXiv 2502.16982, sec. 2).

Five Newton-Schulz steps of `optax.contrib` replace a momentum U S V^T (its
singular value decomposition) with approximately U V^T. This module defines
which axes of a kernel are rows and columns, and scales updates like Adam's.
"""

import dataclasses
import math
from typing import Any, Literal

import optax
from optax import contrib

from vit_jax import fields
from vit_jax import tree
from vit_jax.extras.optimizers import layer_decay
from vit_jax.optim import config

# Kernels of encoder layers and ResNet units.
LAYERS = rf'({layer_decay.STACKED}|backbone/block\d+/).*kernel'


@dataclasses.dataclass(frozen=True, kw_only=True)
class MuonConfig(config.AdamConfig):
  """Muon for matrices of the layers, Adam for the rest (arXiv:2502.16982).

  Updates of matrices have the size of Adam's, so the learning rate and weight
  decay of Adam carry over.

  Attributes:
    momentum: bias-corrected Nesterov momentum, then orthogonalised.
    rms: root mean square of the elements of a matrix update.
    matrices: regular expression of the parameters that Muon updates: kernels
      whose last axis is the output. The kernel of a convolution is the matrix
      [height x width x in, out]. Embeddings and head use Adam, as the authors
      recommend. The default may match nothing.
  """
  name: Literal['muon'] = 'muon'  # type: ignore[assignment]
  momentum: float = 0.95
  rms: float = 0.2
  matrices: str = LAYERS

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'momentum', end=1)
    fields.check_range(self, 'rms')

  def scale(self, params: Any) -> optax.GradientTransformation:
    labels = tree.map_rules(
        params, [(self.matrices, 'matrices')], default='rest',
        where='optimizer.matrices', optional=[LAYERS])
    return optax.partition({
        'rest': super().scale(params), 'matrices': _scale_by_muon(
            beta=self.momentum, rms=self.rms, mu_dtype=self.momentum_dtype),
    }, labels)


def _scale_by_muon(
    *, beta: float, rms: float, mu_dtype: str,
) -> optax.GradientTransformation:
  """Returns the transformation of a tree of kernels.

  Args:
    beta: Nesterov momentum.
    rms: root mean square of the elements of an update, independent of the shape
      of the matrix; 0.2 is close to Adam's.
    mu_dtype: dtype of the momentum.
  """
  def scale(name: str, update: Any) -> Any:
    # An orthogonal [rows, columns] matrix has min(rows, columns) singular
    # values of 1, so the mean square of its elements is 1 / max(rows, columns).
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
  """Returns the row (input) and column (output) axes of a kernel.

  Stacked layers and ResNet units are separate matrices, and so are queries,
  keys and values.
  """
  in_layers = layer_decay.STACKED in name
  first = int(in_layers or '/units/' in name)
  last = len(leaf.shape) - 1
  # [layer, width, 3, heads, head_dim], or queries and the rest separately.
  if in_layers and last == 4:
    return contrib.MuonDimensionNumbers((first,), (last - 1, last))
  return contrib.MuonDimensionNumbers(tuple(range(first, last)), (last,))
