"""A learning rate for each layer: the deeper it lies, the less it moves.

What a pre-trained model has learned near its input fits most images; what it
has learned near its output fits what it was trained on. Fine-tuning with decay
d multiplies the learning rate, in a model of `depth` layers, by

    1                 the head, and what comes after the layers
    d^(depth - i)     layer i = 0 ... depth - 1
    d^(depth + 1)     the embeddings: patches, positions, class token, registers
                      and, of a hybrid, the ResNet

as BEiT (arXiv 2106.08254, appendix) and MAE (arXiv 2111.06377, appendix A.2)
have it: their code numbers the embeddings 0, layer i as i + 1, and the rest
depth + 1. The parameters of all layers are one array each, stacked along its
first axis; theirs is then a vector of multipliers along that axis.
"""

from typing import Any

from jaxtyping import Float
import numpy as np

from vit_jax import tree

STACKED = 'encoder/layers/'
# By the first part of a path. What is neither here nor in a layer comes after
# the layers: final_norm, pooling, representation, head.
EMBEDDINGS = ('backbone', 'patches', 'positions', 'cls', 'registers')


def multipliers(params: Any, decay: float) -> Any:
  """Returns a tree of factors that broadcast against the parameters.

  Args:
    params: nested dicts of arrays or shapes.
    decay: factor from one layer to the one below it, such as 0.75.

  Raises:
    ValueError: if there are no stacked layers, as in a ResNet.
  """
  depths = {leaf.shape[0] for name, leaf in tree.flatten(params).items()
            if name.startswith(STACKED)}
  if not depths:
    raise ValueError(
        f'optimizer.layer_decay is {decay:g}, but the model has no Transformer '
        f'layers (parameters {STACKED}...), so there is nothing to decay over. '
        'Leave it out, or use optimizer.learning_rate_rules. Parameters begin '
        f'with: {", ".join(sorted(params))}.')
  assert len(depths) == 1, depths
  depth = depths.pop()

  def multiplier(name: str, leaf: Any) -> Float[np.ndarray, '...']:
    if name.startswith(STACKED):
      by_layer = decay ** (depth - np.arange(depth, dtype=np.float64))
      return by_layer.astype(np.float32).reshape(
          depth, *(1,) * (len(leaf.shape) - 1))
    first = name.split('/')[0].split('_')[0]
    return np.asarray(
        decay ** (depth + 1) if first in EMBEDDINGS else 1.0, np.float32)

  return tree.map_with_name(multiplier, params)
