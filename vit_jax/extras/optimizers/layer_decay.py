"""Layer-wise learning-rate decay for fine-tuning.

With decay d and `depth` layers, the learning rate is multiplied by

    1                 head and everything else after the layers, and relative
                      positions that all layers share
    d^(depth - i)     layer i = 0 ... depth - 1
    d^(depth + 1)     embeddings: patches, positions, class token,
                      distillation token, registers and the ResNet of a hybrid,
                      or a whole ResNet up to its last norm (depth 0)

as in BEiT (arXiv 2106.08254, appendix) and MAE (arXiv 2111.06377, appendix
A.2), which number the embeddings 0, layer i as i + 1 and the rest depth + 1.
BEiT's code has shared relative positions among the rest (`rel_pos_bias` in
`get_num_layer_for_vit` of github.com/microsoft/unilm/beit/optim_factory.py).
Layers are stacked along the first axis of one array, so their multipliers are a
vector along that axis.
"""

from typing import Any

from jaxtyping import Float
import numpy as np

from vit_jax import tree
from vit_jax.exceptions import UserError

STACKED = 'encoder/layers/'
_ADAPTERS = 'lora/'
# First components of the paths of embeddings. Paths that are neither here nor
# in a layer come after the layers: final_norm, pooling, representation, head.
EMBEDDINGS = (
    'backbone', 'patch', 'patches', 'stem', 'positions', 'cls', 'distill',
    'registers')
SHARED = 'relative'  # Relative positions that all layers share.


def multipliers(params: Any, decay: float, *, frozen: int = 0) -> Any:
  """Returns a tree of multipliers that broadcast against the parameters.

  Those of the first `frozen` layers, and of the embeddings and relative
  positions that enter them, are 0.

  Raises:
    UserError: if there are fewer stacked layers than `frozen`.
  """
  depth, = {leaf.shape[0] for name, leaf in tree.flatten(params).items()
            if name.removeprefix(_ADAPTERS).startswith(STACKED)} or {0}
  if frozen > depth:
    raise UserError(
        f'optimizer.frozen_layers is {frozen}, but the model has {depth} '
        'layers.')

  def multiplier(name: str, leaf: Any) -> Float[np.ndarray, '...']:
    name = name.removeprefix(_ADAPTERS)
    if name.startswith(STACKED):
      layer = np.arange(depth, dtype=np.float64)
      by_layer = (layer >= frozen) * decay ** (depth - layer)
      return by_layer.astype(np.float32).reshape(
          depth, *(1,) * (len(leaf.shape) - 1))
    first = name.split('/')[0].split('_')[0]
    if frozen and first in (*EMBEDDINGS, SHARED):
      return np.asarray(0, np.float32)
    return np.asarray(
        decay ** (depth + 1) if first in EMBEDDINGS else 1, np.float32)

  return tree.map_with_name(multiplier, params)
