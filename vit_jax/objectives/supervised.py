"""Supervised classification: softmax or sigmoid cross-entropy."""

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
    loss: 'softmax', or 'sigmoid' for examples with several labels.
    label_smoothing: share of the target spread evenly over all classes.
  """
  name: Literal['supervised'] = 'supervised'
  loss: Literal['softmax', 'sigmoid'] = 'softmax'
  label_smoothing: float = 0.0

  def __post_init__(self):
    if not 0 <= self.label_smoothing < 1:
      raise ValueError(
          f'label_smoothing is in [0, 1), but is {self.label_smoothing}.')


class Supervised:
  """The loss of a model on labelled batches.

  Attributes:
    measures: what is reported beside the loss: 'accuracy', or 'precision_at_1'
      where an example may have several labels.
  """

  def __init__(
      self, config: SupervisedConfig, model: nn.Module, *, multi_label: bool):
    self._config = config
    self._model = model
    self.measures: tuple[str, ...] = (
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
    (name,) = self.measures
    hit = (metrics.precision_at_1(logits, labels) if name == 'precision_at_1'
           else metrics.top_k_correct(logits, labels, k=1))
    return cross_entropy(self._config, logits, labels), {name: hit}


def cross_entropy(
    config: SupervisedConfig, logits: Float[Array, 'batch classes'],
    labels: jax.Array,
) -> Float[Array, 'batch']:
  """Returns the loss of each example, with the smoothing of the config."""
  function = (losses.softmax_cross_entropy if config.loss == 'softmax'
              else losses.sigmoid_cross_entropy)
  return function(logits, labels, label_smoothing=config.label_smoothing)
