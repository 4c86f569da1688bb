"""Supervised learning: of classes by cross-entropy, of numbers by their error.

What a loss is for is told by the data: classes (softmax, sigmoid) or targets,
numbers to predict (mse, mae, huber). One for the other is an error.
"""

from collections.abc import Mapping
import dataclasses
from typing import Literal

import flax.linen as nn
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from vit_jax import losses
from vit_jax import metrics
from vit_jax import types


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
  """Section `objective` of a config, for `name: 'supervised'`.

  Attributes:
    name: always 'supervised'.
    loss: of classes, 'softmax', or 'sigmoid' for examples with several labels;
      of numbers to predict, 'mse' (squared), 'mae' (absolute error) or 'huber',
      in standard deviations of the training split. 'auto' is softmax or mse,
      as the data asks.
    label_smoothing: share of the target spread evenly over all classes.
  """
  name: Literal['supervised'] = 'supervised'
  loss: Literal['auto', 'softmax', 'sigmoid', 'mse', 'mae', 'huber'] = 'auto'
  label_smoothing: float = 0.0

  def __post_init__(self):
    if not 0 <= self.label_smoothing < 1:
      raise ValueError(
          f'label_smoothing is in [0, 1), but is {self.label_smoothing}.')


def resolve(config: SupervisedConfig, *, targets: bool) -> SupervisedConfig:
  """Returns the config with the loss of such data, for 'auto'.

  Args:
    config: the section.
    targets: whether labels are numbers, not classes.

  Raises:
    ValueError: if what it says is not for such data.
  """
  if config.loss == 'auto':
    config = dataclasses.replace(config, loss='mse' if targets else 'softmax')
  if (config.loss in losses.ERRORS) != targets:
    kind, known = (('numbers to predict', tuple(losses.ERRORS)) if targets else
                   ('classes', ('softmax', 'sigmoid')))
    raise ValueError(
        f'objective.loss is {config.loss!r}, but the labels are {kind}. Use '
        f'{" or ".join(known)}, or leave it out.')
  if targets and config.label_smoothing:
    raise ValueError(
        f'objective.label_smoothing is {config.label_smoothing}, but the '
        'labels are numbers to predict: there are no classes to spread over. '
        'Use --config.objective.label_smoothing=0.')
  return config


class Supervised:
  """The loss of a model on labelled batches.

  Attributes:
    measures: what is reported beside the loss: 'accuracy', or 'precision_at_1'
      where an example may have several labels; nothing where they are numbers.
  """

  def __init__(
      self, config: SupervisedConfig, model: nn.Module, *, multi_label: bool,
      targets: bool = False,
  ):
    self._config = resolve(config, targets=targets)
    self._model = model
    self.measures: tuple[str, ...] = (
        () if targets else
        ('precision_at_1',) if multi_label else ('accuracy',))

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool = True,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns loss and measures of each example.

    Args:
      params: of the model.
      batch: as the model sees it.
      key: of all that is random.
      train: with dropout and stochastic depth.
    """
    outputs = self._model.apply(
        {'params': params}, batch['image'], train=train, rngs={'dropout': key})
    logits, labels = outputs['logits'], batch['label']
    loss = of_logits(self._config, logits, labels)
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
  """Returns the loss of each example, with the smoothing of the config.

  Args:
    config: resolved: with a loss that is not 'auto'.
    logits: or, of numbers to predict, what is answered; standardised.
    labels: as the model sees them.
  """
  if config.loss in losses.ERRORS:
    return losses.mean_error(logits, labels, kind=config.loss)
  function = (losses.softmax_cross_entropy if config.loss == 'softmax'
              else losses.sigmoid_cross_entropy)
  return function(logits, labels, label_smoothing=config.label_smoothing)
