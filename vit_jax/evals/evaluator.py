"""What an evaluator is given, and what it gives.

    section + Context ─▶ build ─▶ measure(params) ─▶ Measured

An evaluator knows its own section and this record: not the config, not the
trainer, not how data is read. All of its data is opened when it is built, so
that what is missing stops a run at its start.
"""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import typing
from typing import Any, Literal, Protocol

import jax
from jaxtyping import Array, Float, Int
import numpy as np

from vit_jax import types

Mode = Literal['max', 'min']
Between = Callable[[], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
  """Examples to evaluate on.

  Attributes:
    name: data set and split, for messages.
    batches: opens them anew; as the model sees them: images in its value range,
      labels as class indices or k-hot. The last is padded and masked.
    num_examples: in the split; what is counted is held against it.
    may_miss: of these, how many may be left out, as they cannot be read.
    num_classes: of the data set.
    class_names: of the classes in order, where known.
    multi_label: labels are k-hot [batch, classes], not indices [batch].
    targets: names of the numbers to predict, where labels are such:
      standardised [batch, targets], NaN where they are not known.
    target_mean: of each, what a label of 0 means.
    target_std: of each, what a difference of 1 in a label means.
    ranks: of a split drawn by class: the place of each example among those of
      its class in the draw of each seed, from 0; -1 where it is not drawn.
  """
  name: str
  batches: Callable[[], Iterator[types.Batch]]
  num_examples: int
  num_classes: int
  class_names: tuple[str, ...] | None = None
  multi_label: bool = False
  targets: tuple[str, ...] = ()
  target_mean: tuple[float, ...] = ()
  target_std: tuple[float, ...] = ()
  ranks: Int[np.ndarray, 'seeds examples'] | None = None
  may_miss: int = 0


@typing.runtime_checkable
class Open(Protocol):
  """Opens a split; raises if it is not there."""

  def __call__(
      self, split: str, source: str = '', *, batch_size: int | None = None,
      per_class: int = 0, seeds: tuple[int, ...] = (0,),
      real_labels: str = '') -> Split:
    """Returns a split.

    Args:
      split: TFDS split string; '' is the one that results are published on.
      source: data set; '' is the one that is trained on.
      batch_size: global; None is what is trained on at once.
      per_class: only so many examples of each class, for each of the seeds.
      seeds: of the draws.
      real_labels: file of ImageNet's re-assessed labels, to take instead.
    """


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
  """What evaluators may know of an experiment.

  Attributes:
    where: the evaluator's section, for messages.
    predict: the model without dropout; to be jitted.
    objective: what is trained on: parameters, batch, key and `train` to the
      loss and measures of each example.
    loss: of each example, of logits and labels; without smoothing.
    activation: of logits, to probabilities.
    num_classes: of the model.
    targets: names of the numbers that it predicts, if these are no classes.
    trained_on: data set that these are of.
    open: opens splits.
  """
  where: str
  predict: Callable[[types.Params, types.Batch], types.Outputs]
  objective: Callable[..., tuple[jax.Array, Mapping[str, jax.Array]]]
  loss: Callable[[Float[Array, 'batch classes'], jax.Array],
                 Float[Array, 'batch']]
  activation: Literal['softmax', 'sigmoid']
  num_classes: int
  trained_on: str
  open: Open
  targets: tuple[str, ...] = ()

  def open_for_head(self, split: str, source: str, **options: Any) -> Split:
    """Opens a split whose classes are those of the model's head.

    Raises:
      ValueError: if they cannot be, or are numbers to predict.
    """
    opened = self.open_as_trained(split, source, **options)
    self.need_classes(opened)
    return opened

  def need_classes(self, split: Split) -> None:
    """Raises if the labels of a split are numbers to predict."""
    if split.targets:
      raise ValueError(
          f'{self.where} measures classes, but the labels of {split.name} are '
          f'numbers to predict ({", ".join(split.targets)}). Use '
          f'--config.{self.where}.name=regression.')

  def open_as_trained(self, split: str, source: str, **options: Any) -> Split:
    """Opens a split of classes or targets that are those of the model's head.

    Raises:
      ValueError: if they cannot be.
    """
    opened = self.open(split, source, **options)
    if opened.targets != self.targets:
      raise ValueError(
          f'{self.where}: {opened.name} has '
          f'{_answers(opened.targets)}, but the model is trained on '
          f'{self.trained_on} with {_answers(self.targets)}.')
    if opened.num_classes != self.num_classes:
      raise ValueError(
          f'{self.where}: {opened.name} has {opened.num_classes} classes, but '
          f'the model is trained on {self.trained_on} with '
          f'{self.num_classes}. What needs no head: fewshot, knn.')
    return opened


@dataclasses.dataclass(frozen=True)
class Measured:
  """What an evaluation gave.

  Attributes:
    metrics: numbers by name.
    tables: arrays that say more, by name.
    class_names: of the classes or targets that tables are of, where known.
  """
  metrics: dict[str, float]
  tables: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  class_names: tuple[str, ...] | None = None


def _answers(targets: tuple[str, ...]) -> str:
  return f'the targets {", ".join(targets)}' if targets else 'classes'


# Parameters, and what to call after each batch: it may raise to cut it off.
Measure = Callable[[types.Params, Between], Measured]


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluator:
  """Measures parameters.

  Attributes:
    details: returns numbers and tables of parameters.
  """
  details: Measure

  def __call__(
      self, params: types.Params, between: Between = lambda: None,
  ) -> dict[str, float]:
    """Returns the metrics of `params`; see `Measure`."""
    return self.details(params, between).metrics
