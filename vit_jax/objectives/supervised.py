"""Supervised learning: classification and regression.

The dataset determines which losses apply: softmax and sigmoid for classes,
mse, mae and huber for regression targets.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any, Literal

import flax.linen as nn
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray
import numpy as np

from vit_jax import losses
from vit_jax import metrics
from vit_jax import schema
from vit_jax import types

# Names of other parameters in training (`objectives.distill`).
TEACHER, PROJECTOR = 'teacher', 'projector'


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
  """Section `objective` of a config with `name: 'supervised'`.

  Attributes:
    name: 'supervised'.
    loss: 'softmax' or 'sigmoid' for classes; for regression 'mse', 'mae' or
      'huber', in standard deviations of the training split. 'auto' is softmax,
      sigmoid if examples may have several labels, or mse for regression.
    label_smoothing: probability mass spread uniformly over all classes.
    class_weights: loss weights: 'inverse' for 1 / n with n training examples of
      the class, 'inverse_sqrt' for 1 / sqrt(n), or a weight per class. Weights
      are scaled to a mean of 1 over the training split, which keeps the scale
      of the loss.
  """
  name: Literal['supervised'] = 'supervised'
  loss: Literal['auto', 'softmax', 'sigmoid', 'mse', 'mae', 'huber'] = 'auto'
  label_smoothing: float = 0.0
  class_weights: (
      Literal['none', 'inverse', 'inverse_sqrt'] | tuple[float, ...]) = 'none'

  def __post_init__(self):
    given = self.class_weights
    if isinstance(given, tuple) and not (
        given and all(0 <= w < math.inf for w in given) and any(given)):
      raise ValueError(
          'class_weights must be finite and at least 0, and not all 0, but are '
          f'{given}.')
    schema.check_range(self, 'label_smoothing', end=1)


@dataclasses.dataclass(frozen=True)
class DistillConfig(SupervisedConfig):
  """Section `objective` of a config with `name: 'distill'`.

  See `objectives.distill`. The other fields are those of the loss of labels.

  Attributes:
    name: 'distill'.
    teacher: weights of the teacher, in any format that `vit_jax.load` reads. It
      must have the classes of the dataset.
    which: 'latest' or 'best' checkpoint of a workdir.
    targets: 'soft' for the class probabilities of the teacher, 'hard' for its
      most probable class.
    temperature: divides the logits of both for soft targets.
    weight: weight of the teacher's loss; that of the labels is 1 - weight.
    feature_weight: weight of the distance of representations, which is added to
      the loss.
  """
  name: Literal['distill'] = 'distill'  # type: ignore[assignment]
  teacher: str = ''
  which: Literal['latest', 'best'] = 'latest'
  targets: Literal['soft', 'hard'] = 'soft'
  temperature: float = 1.0
  weight: float = 1.0
  feature_weight: float = 0.0

  def __post_init__(self):
    super().__post_init__()
    if self.loss not in ('auto', 'softmax'):
      raise ValueError(
          f'distill compares softmax probabilities, but loss is {self.loss!r}.')
    if not self.teacher:
      raise ValueError(
          'distill needs the weights of a teacher: '
          '--config.objective.teacher=PATH.')
    if not (0 < self.weight <= 1 and 0 < self.temperature < math.inf
            and 0 <= self.feature_weight < math.inf):
      raise ValueError(
          'weight must be above 0 and at most 1, temperature above 0, and '
          f'feature_weight at least 0, but they are {self.weight}, '
          f'{self.temperature} and {self.feature_weight}.')


def without_teacher(config: Any) -> Any:
  """Returns the objective for evaluation, which needs no teacher."""
  if not isinstance(config, DistillConfig):
    return config
  return SupervisedConfig(
      loss=config.loss, label_smoothing=config.label_smoothing,
      class_weights=config.class_weights)


def resolve(
    config: Any, *, targets: bool, multi_label: bool = False) -> Any:
  """Replaces the loss 'auto' with the default loss of the labels.

  Args:
    config: section `objective`. Other objectives ignore labels and are returned
      unchanged.
    targets: whether labels are regression targets, not classes.
    multi_label: whether an example may have several classes.

  Raises:
    ValueError: if a setting does not apply to the labels.
  """
  if not isinstance(config, SupervisedConfig):
    return config
  labels = ('regression targets' if targets else
            'several classes per image' if multi_label else 'classes')
  known = tuple(losses.ERRORS) if targets else ('softmax', 'sigmoid')
  for name, applies in (
      ('name', not isinstance(config, DistillConfig) or labels == 'classes'),
      ('loss', config.loss in ('auto', *known)),
      ('label_smoothing', not (targets and config.label_smoothing)),
      ('class_weights',
       config.class_weights == 'none' or labels == 'classes')):
    if not applies:
      raise ValueError(
          f'objective.{name} is {getattr(config, name)!r}, but the labels are '
          f'{labels}. ' + (f'Use {" or ".join(known)}, or leave it out.'
                           if name == 'loss' else 'Leave it out.'))
  if config.loss != 'auto':
    return config
  return dataclasses.replace(config, loss=(
      'mse' if targets else 'sigmoid' if multi_label else 'softmax'))


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
    ValueError: for a wrong number of weights, or 0 for all classes with
      examples.
  """
  weights = config.class_weights
  if isinstance(weights, tuple):
    relative = np.asarray(weights)
    if len(weights) != len(counts) or not (relative * counts).any():
      raise ValueError(
          f'objective.class_weights has {len(weights)} weights, '
          f'{int((relative > 0).sum())} of them above 0, but there are '
          f'{len(counts)} classes. Give one weight per class, above 0 for at '
          'least one class with examples.')
  else:
    power = {'inverse': 1.0, 'inverse_sqrt': 0.5}[weights]
    relative = np.maximum(counts, 1).astype(np.float64) ** -power
  scale = counts.sum() / (relative * counts).sum()
  return (relative * scale).astype(np.float32)


class Supervised:
  """Loss of a model on labelled batches.

  Attributes:
    measures: metrics besides the loss: 'accuracy' for classes, 'precision_at_1'
      for several labels per example, none for regression.
  """

  def __init__(
      self, config: SupervisedConfig, model: nn.Module, *, multi_label: bool,
      targets: bool = False,
      class_weights: Float[np.ndarray, 'classes'] | None = None,
  ):
    """Initialises the loss; see `resolve` for the kinds of labels."""
    self._config = resolve(config, targets=targets, multi_label=multi_label)
    self._class_weights = class_weights
    self._model = model
    self.measures: tuple[str, ...] = (
        () if targets else
        ('precision_at_1',) if multi_label else ('accuracy',))

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool = True,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns the loss and measures of each example.

    `train` applies dropout and stochastic depth, with the random `key`.
    """
    outputs = self.outputs(params, batch, key, train)
    return self.measure(outputs['logits'], batch['label'])

  def outputs(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool,
  ) -> types.Outputs:
    """Applies the model."""
    return self._model.apply(
        {'params': params}, batch['image'], train=train,
        rngs={'dropout': key})

  def measure(
      self, logits: Float[Array, 'batch classes'], labels: jax.Array,
  ) -> tuple[Float[Array, 'batch'], dict[str, Float[Array, 'batch']]]:
    """Returns the loss and measures of logits."""
    loss = of_logits(self._config, logits, labels)
    if self._class_weights is not None:
      loss = loss * losses.label_weights(labels, self._class_weights)
    if not self.measures:
      return loss, {}
    (name,) = self.measures
    hit = (metrics.precision_at_1(logits, labels) if name == 'precision_at_1'
           else metrics.top_k_correct(logits, labels, k=1))
    return loss, {name: hit}


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
