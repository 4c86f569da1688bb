"""Supervised learning: of classes by cross-entropy, of numbers by their error.

What a loss is for is told by the data: classes (softmax, sigmoid) or targets,
numbers to predict (mse, mae, huber). One for the other is an error.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Literal

import flax.linen as nn
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray
import numpy as np

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
    class_weights: what the loss of an example is multiplied by, for its class:
      'inverse' to the examples of the class in the training split,
      'inverse_sqrt' to the root of these, or a weight for each class in their
      order. Only their ratios matter: they are scaled so that their mean over
      the examples of the training split is 1, which keeps the loss, and what
      the learning rate means, of the same size.
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
          'class_weights are finite and at least 0, and some are more, but are '
          f'{given}.')
    if not 0 <= self.label_smoothing < 1:
      raise ValueError(
          f'label_smoothing is in [0, 1), but is {self.label_smoothing}.')


def resolve(
    config: SupervisedConfig, *, targets: bool, multi_label: bool = False,
) -> SupervisedConfig:
  """Returns the config with the loss of such data, for 'auto'.

  Args:
    config: the section.
    targets: whether labels are numbers, not classes.
    multi_label: whether an example may have several classes.

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
  if config.class_weights != 'none' and (targets or multi_label):
    what = 'are numbers to predict' if targets else 'are several for an image'
    raise ValueError(
        f'objective.class_weights is {config.class_weights!r}, but the labels '
        f'{what}: an example has no one class to be weighed by. Use '
        '--config.objective.class_weights=none.')
  return config


def class_weights(
    config: SupervisedConfig, counts: Int[np.ndarray, 'classes'],
) -> Float[np.ndarray, 'classes']:
  """Returns the weight of each class: 1 in the mean over the examples.

    w_c = k r_c,  k such that sum_c n_c w_c = sum_c n_c

  with r_c = 1 / n_c, 1 / sqrt(n_c), or as given. A class without examples is
  weighed as if it had one: it is met in evaluation alone.

  Args:
    config: with weights that are not 'none'.
    counts: examples of each class in the training split.

  Raises:
    ValueError: if the given are not as many as classes, or none is of a class
      that occurs.
  """
  asked = config.class_weights
  if isinstance(asked, tuple):
    relative = np.asarray(asked)
    if len(asked) != len(counts) or not (relative * counts).any():
      raise ValueError(
          f'objective.class_weights are {len(asked)} numbers, of which '
          f'{int((relative > 0).sum())} are more than 0, but there are '
          f'{len(counts)} classes. Give one for each, in their order, of which '
          'one that occurs is more than 0.')
  else:
    power = {'inverse': 1.0, 'inverse_sqrt': 0.5}[asked]
    relative = np.maximum(counts, 1).astype(np.float64) ** -power
  scale = counts.sum() / (relative * counts).sum()
  return (relative * scale).astype(np.float32)


class Supervised:
  """The loss of a model on labelled batches.

  Attributes:
    measures: what is reported beside the loss: 'accuracy', or 'precision_at_1'
      where an example may have several labels; nothing where they are numbers.
  """

  def __init__(
      self, config: SupervisedConfig, model: nn.Module, *, multi_label: bool,
      targets: bool = False,
      class_weights: Float[np.ndarray, 'classes'] | None = None,
  ):
    """Takes the section and its model.

    Args:
      config: the section.
      model: gives `logits`.
      multi_label: whether an example may have several classes.
      targets: whether labels are numbers to predict.
      class_weights: of the loss; see `class_weights`.
    """
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
