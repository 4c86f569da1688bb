"""Objective of models that predict masked patches; needs no labels.

`MaskedPatchConfig` and `MaeConfig` define which patches are masked, what is
predicted, and whether there is a decoder. Masks are drawn for the whole batch:
they depend on the seed, the step and the position in the batch, but not on
devices and microbatches.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vit_jax import models
from vit_jax import types
from vit_jax.objectives import mae
from vit_jax.objectives import masked_patch
from vit_jax.objectives import patch_targets

# Results of `Config.corrupt`.
_INPUTS = ('indices', 'sources', 'visible')


Config = masked_patch.MaskedPatchConfig | mae.MaeConfig


class Pictures(NamedTuple):
  """Normalised images [batch, height, width, channels] of a reconstruction."""
  original: jax.Array
  masked: jax.Array
  reconstructed: jax.Array


class MaskedPrediction:
  """Loss of the predictions of masked patches.

  Attributes:
    measures: ('color_accuracy',) for colour targets.
  """

  def __init__(
      self, config: Config, model: nn.Module, *,
      mean: patch_targets.Statistic, std: patch_targets.Statistic,
  ):
    """Initialises the loss; `mean` and `std` normalise images in [0, 1]."""
    self._config, self._model = config, model
    self._scale = {'mean': mean, 'std': std}
    self.measures: tuple[str, ...] = (
        ('color_accuracy',) if config.target in patch_targets.SIDES else ())

  def draw(
      self, images: Float[Array, 'batch height width channels'],
      key: PRNGKeyArray,
  ) -> dict[str, jax.Array]:
    """Returns random inputs of a batch, which `__call__` finds in `batch`."""
    return self._config.corrupt(
        jax.random.split(key)[0], batch_size=images.shape[0],
        patches=math.prod(self._grid(images)))

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool = True,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns the loss and measures of each example.

    Labels are not used. `key` also samples masks that are not in the batch;
    `train` applies dropout and stochastic depth.
    """
    images = batch['image']
    inputs = ({name: batch[name] for name in _INPUTS if name in batch}
              or self.draw(images, key))
    predictions = self._model.apply(
        {'params': params}, images, train=train,
        rngs={'dropout': jax.random.split(key)[1]}, **inputs)['predictions']
    targets = patch_targets.compute(
        self._config.target, patch_targets.split(images, self._grid(images)),
        **self._scale)
    return patch_targets.loss(
        self._config.target, predictions, jnp.take_along_axis(
            targets, inputs['indices'][..., None], axis=1))

  def reconstruct(
      self, params: types.Params,
      images: Float[Array, 'batch height width channels'], key: PRNGKeyArray,
  ) -> Pictures:
    """Returns images with grey masked patches, and with predicted patches."""
    grid = self._grid(images)
    inputs = self.draw(images, key)
    patches = patch_targets.split(images, grid)
    # The predictions of all patches, of which the masked ones are used.
    predictions = self._model.apply(
        {'params': params}, images,
        **{**inputs, 'indices': None})['predictions']
    predicted = patch_targets.to_pixels(
        self._config.target, predictions, patches, **self._scale)
    chosen = jnp.zeros(patches.shape[:2], bool).at[
        jnp.arange(len(images))[:, None], inputs['indices']].set(True)
    grey = (0.5 - jnp.asarray(self._scale['mean'])) / jnp.asarray(
        self._scale['std'])
    masked, reconstructed = (
        patch_targets.join(
            jnp.where(chosen[..., None, None, None], new, patches), grid)
        for new in (grey, predicted))
    return Pictures(images, masked, reconstructed)

  def _grid(self, images: jax.Array) -> tuple[int, int]:
    return models.grid(
        self._model.config, (images.shape[1], images.shape[2]))


def training_inputs(
    config: Config, grid: tuple[int, int],
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes of the drawn inputs of one image."""
  return jax.eval_shape(lambda: config.corrupt(
      jax.random.key(0), batch_size=1, patches=math.prod(grid)))


def build_model(
    config: Config, model: models.ModelConfig, *,
    image_shape: tuple[int, int, int], num_classes: int,
) -> nn.Module:
  """Returns the model with the prediction layer of the target.

  Raises:
    ValueError: for a ResNet or hybrid, too few patches, or an image size that
      is not divisible by the grid.
  """
  what = f'objective {config.name}'
  if model.name != 'vit':
    raise ValueError(
        f'{what} needs a ViT, but the model is a {model.name}, which has no '
        'patches. Choose another model.variant.')
  if model.backbone is not None:
    raise ValueError(
        f'{what} needs a ViT without model.backbone: the receptive field of a '
        'ResNet leaks the pixels of a patch to its neighbours. Choose another '
        'model.variant, such as B/16.')
  height, width, channels = image_shape
  rows, columns = models.grid(model, (height, width))
  if height % rows or width % columns:
    raise ValueError(
        f'{what}: an image of {height}x{width} does not divide into the '
        f'{rows}x{columns} patches of the model. Choose another '
        'data.resolution.')
  if channels > 3 and config.target in patch_targets.SIDES:
    raise ValueError(
        f'objective.target {config.target} has {patch_targets.LEVELS} ** '
        f'{channels} classes with {channels} channels, which are too many. Use '
        '--config.objective.target=patch.')
  training_inputs(config, (rows, columns))  # Raises for too few patches.
  from vit_jax.models import masked_patch as masked_patch_model
  return masked_patch_model.MaskedPatch(
      dataclasses.replace(model, num_classes=num_classes),
      patch_targets.num_outputs(
          config.target, (height // rows, width // columns, channels)),
      config.decoder(model))
