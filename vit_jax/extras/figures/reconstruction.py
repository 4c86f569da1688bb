"""Images as reconstructed by the pre-training of a checkpoint.

`load` of a model drops the decoder and the prediction layer of masked patch
prediction and MAE; these functions read them from the checkpoint.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Float
import numpy as np

from vit_jax import objectives
from vit_jax.inference import model as model_lib
from vit_jax.weights import open as open_lib

Images = Float[np.ndarray, 'batch height width channels']


def load(
    model: model_lib.Model,
) -> Callable[[Images], tuple[Images, ...]] | None:
  """Returns a function that reconstructs preprocessed images, if any.

  It returns the images, the images with grey masked patches, and the images
  with predicted patches, each in 0 ... 1. The masks are always the same. Only
  checkpoints have predictions.
  """
  if not model.is_checkpoint:
    return None  # Weight files. Do not download them again.
  weights = open_lib.open(model.address)
  if 'masked_patch' not in weights.shapes:
    return None
  config = objectives.parse(weights.run['objective'])
  preprocess = model.preprocess
  module = config.build_model(
      model.config, num_classes=model.config.num_classes,
      image_shape=(*preprocess.resolution, preprocess.channels))
  objective: Any = config.build(objectives.Context(
      module, value_scale=preprocess.value_scale))
  params = {**model.params_for(preprocess.resolution),
            'masked_patch': weights.read()['masked_patch']}

  def reconstruct(images: Images) -> tuple[Images, ...]:
    pictures = jax.device_get(jax.jit(objective.reconstruct)(
        params, preprocess.value_scale.denormalize(images),
        jax.random.key(0)))
    return tuple(picture.clip(0, 1) for picture in pictures)

  return reconstruct
