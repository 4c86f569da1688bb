"""Semantic segmentation: the class of each pixel.

The model has a decoder (`model.decoder`), whose logits are interpolated to the
pixels of the mask. Pixels without a class do not count.
"""

import dataclasses
from typing import ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt8
import optax

from vit_jax import data
from vit_jax import metrics
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.extras.segmentation import mask_reader
from vit_jax.models import model_config
from vit_jax.objectives import objective


@dataclasses.dataclass(frozen=True)
class SegmentationConfig(objective.ObjectiveConfig):
  """Section `objective` of a config with `name: 'segmentation'`.

  Attributes:
    classes: names of the mask values from 0.
    ignored: value of mask pixels without a class.
    class_weights: weight of the pixels of each class; () for 1. The loss is the
      weighted mean over the pixels of an image.
  """
  uses_masks: ClassVar[bool] = True

  name: Literal['segmentation'] = 'segmentation'
  classes: tuple[str, ...] = ()
  ignored: int = mask_reader.IGNORED
  class_weights: tuple[float, ...] = ()

  def __post_init__(self):
    count = len(self.classes)
    if count > mask_reader.IGNORED or len({*self.classes}) < count:
      raise UserError(
          f'classes must be at most {mask_reader.IGNORED} different names, but '
          f'are {self.classes}.')
    if self.class_weights and (
        len(self.class_weights) != count or min(self.class_weights) < 0
        or not max(self.class_weights)):
      raise UserError(
          f'class_weights must be {count} numbers, one for each of classes, '
          f'from 0 and not all 0, but are {self.class_weights}.')

  def metrics(self) -> tuple[objective.Metric, ...]:
    return (objective.Metric('pixel_accuracy', is_fraction=True),)

  def with_labels(self, dataset: data.Dataset) -> data.Dataset:
    if not self.classes:
      raise UserError(
          'objective.classes is empty. Name the classes of the mask values 0, '
          '1 and so on: --config.objective.classes=\'["sky","road"]\'.')
    return mask_reader.with_masks(dataset, self.classes, ignored=self.ignored)

  def build_model(
      self, model: model_config.ModelConfig, *,
      image_shape: tuple[int, int, int], num_classes: int,
  ) -> nn.Module:
    if getattr(model, 'decoder', None) is None:
      raise UserError(
          'The objective segmentation needs a ViT with a decoder, but the '
          'model has none. To train one on these weights, use '
          'configs/segmentation.py with --config.init.checkpoint=PATH, and '
          'evaluate that run.')
    return super().build_model(
        model, image_shape=image_shape, num_classes=num_classes)

  def build(self, context: objective.Context) -> 'Segmentation':
    return Segmentation(self, context)


class Segmentation(objective.Objective):
  """Cross-entropy of the pixels of an image."""

  def __init__(self, config: SegmentationConfig, context: objective.Context):
    """Initialises the loss."""
    self._config, self._context = config, context
    self.metrics = metrics.names(config.metrics())

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> objective.Losses:
    logits = self._context.apply(
        params, batch['image'], key, train=train)['logits']
    return pixel_loss(
        logits, batch['segmentation'], weights=self._config.class_weights)


def pixel_loss(
    logits: Float[Array, 'batch rows columns classes'],
    labels: UInt8[Array, 'batch height width'], *,
    weights: tuple[float, ...] = (),
) -> tuple[Float[Array, 'batch'], dict[str, Float[Array, 'batch']]]:
  """Returns the loss and the accuracy of the pixels of each image.

    sum_i w_(y_i) CE(logits_i, y_i) / sum_i w_(y_i)

  over the pixels with a class; 0 without any. `weights` are those of the
  classes, by default 1.
  """
  count = logits.shape[-1]
  logits = jax.image.resize(logits, (*labels.shape, count), 'linear')
  known = labels != mask_reader.IGNORED
  labels = jnp.where(known, labels, 0).astype(jnp.int32)
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
  weight = known * jnp.asarray(weights or (1.0,) * count)[labels]

  def mean(values: jax.Array, weight: jax.Array) -> jax.Array:
    total = weight.sum(axis=(1, 2))
    return (values * weight).sum(axis=(1, 2)) / jnp.where(total > 0, total, 1)

  return mean(losses, weight), {
      'pixel_accuracy': mean(logits.argmax(axis=-1) == labels, known)}
