"""Supervised learning: classification and regression.

The dataset determines which losses apply: softmax and sigmoid for classes,
mse, mae and huber for regression targets.
"""

import dataclasses
import math
from typing import ClassVar, Literal

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray
import numpy as np

from vit_jax import data
from vit_jax import fields
from vit_jax import losses
from vit_jax import metrics
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.objectives import objective


@dataclasses.dataclass(frozen=True)
class SupervisedConfig(objective.ObjectiveConfig):
  """Section `objective` of a config with `name: 'supervised'`.

  Attributes:
    loss: 'softmax' or 'sigmoid' for classes; for regression 'mse', 'mae' or
      'huber', in standard deviations of the training split. 'auto' is softmax,
      sigmoid if examples may have several labels, or mse for regression.
    label_smoothing: probability mass spread uniformly over all classes.
    class_weights: loss weights: 'inverse' for 1 / n with n training examples of
      the class, 'inverse_sqrt' for 1 / sqrt(n), or a weight per class. Weights
      are scaled to a mean of 1 over the training split, which keeps the scale
      of the loss.
  """
  uses_labels: ClassVar[bool] = True

  name: Literal['supervised'] = 'supervised'
  loss: Literal['auto', 'softmax', 'sigmoid', 'mse', 'mae', 'huber'] = 'auto'
  label_smoothing: float = 0.0
  class_weights: (
      Literal['none', 'inverse', 'inverse_sqrt'] | tuple[float, ...]) = 'none'

  def __post_init__(self):
    given = self.class_weights
    if isinstance(given, tuple) and not (
        given and all(0 <= w < math.inf for w in given) and any(given)):
      raise UserError(
          'class_weights must be finite and at least 0, and not all 0, but are '
          f'{given}.')
    fields.check_range(self, 'label_smoothing', end=1)

  @property
  def label_loss(self) -> str:
    return self.loss

  def metrics(self) -> tuple[objective.Metric, ...]:
    return () if self.loss in losses.ERRORS else (
        metrics.ACCURACY, metrics.PRECISION_AT_1)

  def resolve(self, dataset: data.Metadata) -> 'SupervisedConfig':
    """Replaces the loss 'auto' with the default loss of the labels."""
    targets, multi_label = dataset.targets, dataset.multi_label
    labels = ('regression targets' if targets else
              'several classes per image' if multi_label else 'classes')
    known = tuple(losses.ERRORS) if targets else ('softmax', 'sigmoid')
    for name, applies in (
        ('loss', self.loss in ('auto', *known)),
        ('label_smoothing', not (targets and self.label_smoothing)),
        ('class_weights',
         self.class_weights == 'none' or labels == 'classes')):
      if not applies:
        raise UserError(
            f'objective.{name} is {getattr(self, name)!r}, but the labels are '
            f'{labels}. ' + (f'Use {" or ".join(known)}, or leave it out.'
                             if name == 'loss' else 'Leave it out.'))
    if self.loss != 'auto':
      return self
    return dataclasses.replace(self, loss=(
        'mse' if targets else 'sigmoid' if multi_label else 'softmax'))

  def build(self, context: objective.Context) -> objective.Objective:
    return Supervised(self, context)


def class_weights(
    config: SupervisedConfig, counts: Int[np.ndarray, 'classes'],
) -> Float[np.ndarray, 'classes']:
  """Returns the weight of each class, with mean 1 over the examples.

    w_c = k r_c,  k such that sum_c n_c w_c = sum_c n_c

  with r_c = 1 / n_c, 1 / sqrt(n_c), or the given weights. A class without
  examples, which only evaluation has, is weighted as if it had one.

  Args:
    config: with weights other than 'none'.
    counts: examples of each class in the training split.

  Raises:
    UserError: for a wrong number of weights, or 0 for all classes with
      examples.
  """
  weights = config.class_weights
  if isinstance(weights, tuple):
    relative = np.asarray(weights)
    if len(weights) != len(counts) or not (relative * counts).any():
      raise UserError(
          f'objective.class_weights has {len(weights)} weights, '
          f'{int((relative > 0).sum())} of them above 0, but there are '
          f'{len(counts)} classes. Give one weight per class, above 0 for at '
          'least one class with examples.')
  else:
    power = {'inverse': 1.0, 'inverse_sqrt': 0.5}[weights]
    relative = np.maximum(counts, 1).astype(np.float64) ** -power
  scale = counts.sum() / (relative * counts).sum()
  return (relative * scale).astype(np.float32)


class Supervised(objective.Objective):
  """Loss of a model on labelled batches.

  Its metrics are 'accuracy' for classes, 'precision_at_1' for several labels
  per example, and none for regression.
  """

  def __init__(self, config: SupervisedConfig, context: objective.Context):
    """Initialises the loss; reads the labels for weights of classes."""
    self._config = config.resolve(context.dataset)
    self._context = context
    self._class_weights = None
    if config.class_weights != 'none':
      assert context.class_counts is not None
      self._class_weights = class_weights(config, context.class_counts())
    self.metrics = () if context.dataset.targets else (
        'precision_at_1' if context.dataset.multi_label else 'accuracy',)

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> objective.Losses:
    outputs = self._context.apply(params, batch['image'], key, train=train)
    return self.measure(outputs['logits'], batch['label'])

  def measure(
      self, logits: Float[Array, 'batch classes'], labels: jax.Array,
  ) -> tuple[Float[Array, 'batch'], dict[str, Float[Array, 'batch']]]:
    """Returns the loss and metrics of logits."""
    loss = of_logits(self._config, logits, labels)
    if self._class_weights is not None:
      loss = loss * losses.label_weights(labels, self._class_weights)
    if self._context.dataset.targets:
      return loss, {}
    if self._context.dataset.multi_label:
      return loss, {'precision_at_1': metrics.precision_at_1(logits, labels)}
    return loss, {'accuracy': metrics.top_k_correct(logits, labels, k=1)}


def of_logits(
    config: SupervisedConfig, logits: Float[Array, 'batch classes'],
    labels: jax.Array,
) -> Float[Array, 'batch']:
  """Returns the loss of each example.

  Args:
    config: resolved, with a loss other than 'auto'.
    logits: logits of classes, or standardised predictions of targets.
    labels: prepared labels.
  """
  if config.loss in losses.ERRORS:
    return losses.mean_error(logits, labels, kind=config.loss)
  function = (losses.softmax_cross_entropy if config.loss == 'softmax'
              else losses.sigmoid_cross_entropy)
  return function(logits, labels, label_smoothing=config.label_smoothing)
