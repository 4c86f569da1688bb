"""Images as reconstructed by the pre-training of a checkpoint.

`load` of a model drops the decoder and the prediction layer of masked patch
prediction and MAE; these functions read them from the checkpoint.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import einops
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import numpy as np

from vit_jax import objectives
from vit_jax import types
from vit_jax.data import preprocessing
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.inference import model as model_lib
from vit_jax.objectives import objective as objective_lib
from vit_jax.objectives import patch_targets
from vit_jax.weights import open as open_lib

Images = Float[np.ndarray, 'batch height width channels']


class Reconstruction(NamedTuple):
  """Reconstruction of images by the decoder of a checkpoint.

  Attributes:
    preprocess: preprocessing for the resolution of the pre-training; at others,
      the decoder does not know the positions.
    of_images: returns preprocessed images, the images with grey masked patches
      and the images with predicted patches, each in 0 ... 1. The masks are
      always the same.
  """
  preprocess: preprocessing.Preprocess
  of_images: Callable[[Images], tuple[Images, ...]]


def load(model: model_lib.Model) -> Reconstruction | None:
  """Returns the reconstruction by a checkpoint; None if it predicts no pixels.
  """
  if not model.is_checkpoint:
    return None  # Weight files. Do not download them again.
  weights = open_lib.open(model.address)
  if 'masked_patch' not in weights.shapes:
    return None
  config = objectives.parse(weights.run['objective'])
  preprocess = model.preprocess.resized(weights.resolution)
  module = config.build_model(
      model.config, num_classes=model.config.num_classes,
      image_shape=(*preprocess.resolution, preprocess.channels))
  context = objectives.Context(module, value_scale=preprocess.value_scale)
  params = {**model.params_for(preprocess.resolution),
            'masked_patch': weights.read()['masked_patch']}

  @jax.jit
  def of_batch(params: types.Params, images: Any) -> Any:
    pixels = _denormalize(preprocess.value_scale, images)
    return reconstruct(config, context, params, pixels, jax.random.key(0))

  return Reconstruction(preprocess, lambda images: tuple(
      picture.clip(0, 1)
      for picture in jax.device_get(of_batch(params, images))))


def reconstruct(
    config: Any, context: objectives.Context, params: types.Params,
    images: objective_lib.Images, key: PRNGKeyArray,
) -> tuple[objective_lib.Images, objective_lib.Images, objective_lib.Images]:
  """Returns images, and images with grey and with predicted patches.

  `config` is the record of the objective, and `params` include its own.
  """
  grid = context.model.config.grid((images.shape[1], images.shape[2]))
  inputs = config.build(context).draw(images, key)
  patches = patch_targets.split(images, grid)
  # The predictions of all patches, of which the masked ones are used.
  predictions = context.apply(
      params, images, **{**inputs, 'indices': None})['predictions']
  predicted = to_pixels(config.target, predictions, patches, context)
  chosen = jnp.zeros(patches.shape[:2], bool).at[
      jnp.arange(len(images))[:, None], inputs['indices']].set(True)
  masked, reconstructed = (einops.rearrange(
      jnp.where(chosen[..., None, None, None], new, patches),
      'b (r c) h w ch -> b (r h) (c w) ch', r=grid[0], c=grid[1])
                           for new in (0.5, predicted))
  return images, masked, reconstructed


def to_pixels(
    target: patch_targets.Target,
    predictions: Float[Array, 'batch patches outputs'],
    patches: patch_targets.Patches, context: objectives.Context,
) -> patch_targets.Patches:
  """Returns the pixels in [0, 1] that predictions of all patches describe.

  The mean and deviation of each patch, which 'normalized' does not predict, are
  those of the true `patches`. A colour is the most probable one.
  """
  _, _, height, width, channels = patches.shape
  if target not in patch_targets.SIDES:
    if target == 'normalized':
      center, scale = patch_targets.statistics(
          patch_targets.flat(context.value_scale.normalize(patches)))
      predictions = predictions * scale + center
    return _denormalize(context.value_scale, predictions.reshape(patches.shape))
  side, levels = patch_targets.SIDES[target], patch_targets.LEVELS
  classes = predictions.reshape(
      *patches.shape[:2], side, side, levels**channels).argmax(axis=-1)
  weights = levels ** np.arange(channels)[::-1]
  # The centre of the interval.
  pixels = (classes[..., None] // weights % levels + 0.5) / levels
  rows, columns = (np.arange(n) * side // n for n in (height, width))
  return pixels[:, :, rows][:, :, :, columns]


def _denormalize(
    scale: value_scale_lib.ValueScale,
    inputs: Float[Array, '... height width channels'],
) -> Float[Array, '... height width channels']:
  """Inverts `ValueScale.normalize`."""
  return inputs * jnp.asarray(scale.std) + jnp.asarray(scale.mean)
