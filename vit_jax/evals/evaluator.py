"""Interface between evaluators and the experiment that runs them.

    EvaluatorConfig + Context ─▶ build ─▶ Evaluate(params, on_batch) ─▶ Result

An evaluator sees its own config and a `Context`, never the whole config or the
training loop. It opens its data when it is built, so that missing data stops a
run at its start.
"""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
from typing import Any, ClassVar, Literal

import jax
from jaxtyping import Array, Float, Int, Num
import numpy as np

from vit_jax import classes
from vit_jax import data
from vit_jax import fields
from vit_jax import metrics as metrics_lib
from vit_jax import schema
from vit_jax import types
from vit_jax.exceptions import UserError

Metric = metrics_lib.Metric
OnBatch = Callable[[], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
  """Examples to evaluate on.

  Attributes:
    dataset: the examples, undecoded, and their classes.
    batches: opens an iterator over prepared batches, see `types.Batch`; the
      last is padded.
    target_mean: mean of each target in its own units.
    target_std: standard deviation of each target in its own units.
    image: returns the image of an example as uint8 [height, width, channels],
      resized and cropped as for the model.
    original: returns the image of an example as stored, [height, width,
      channels], and its name.
    mask: returns the mask of an example, of the size of `original`.
    ranks: position of each example among the sampled examples of its class, for
      each seed; -1 if not sampled. Only for splits sampled by class.
    may_miss: whether examples may be missing because they are unreadable.
  """
  dataset: data.Dataset
  batches: Callable[[], Iterator[types.Batch]]
  image: Callable[[int], np.ndarray]
  original: Callable[[int], tuple[np.ndarray, str]]
  target_mean: tuple[float, ...] = ()
  target_std: tuple[float, ...] = ()
  mask: Callable[[int], np.ndarray] | None = None
  ranks: Int[np.ndarray, 'seeds examples'] | None = None
  may_miss: bool = False

  def k_hot(self, labels: jax.Array) -> Num[Array, 'batch classes']:
    """Returns labels of a batch, of one or several classes, as k-hot rows."""
    return labels if self.dataset.multi_label else jax.nn.one_hot(
        labels, self.dataset.num_classes)


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
  """The part of an experiment that evaluators see.

  Attributes:
    where: config section of the evaluator, for messages.
    predict: forward pass without dropout; may be jitted. `capture`, for models
      with layers, is that of `models.vit.ViT`.
    features: returns a feature layer [batch, width] for (params, batch, layer,
      setting); see `models.feature_layers`. `setting` is for messages.
    objective: training objective (params, batch, key, train) -> per-example
      loss and metrics.
    objective_uses_labels: whether it reads the labels of a batch.
    loss: per-example loss of logits and labels, without label smoothing.
    activation: maps logits to probabilities.
    train_data: training data, with the classes of the model's head.
    open_split: opens (split, source='', batch_size=None, per_class=0,
      seeds=(0,), relabel=None, head_classes=False), where `per_class` samples
      that many examples of each class for each seed, or all of a smaller class,
      `relabel` maps the dataset to one with other labels or with masks, and
      `head_classes` numbers the classes as the head, if it has them all.
    grid: rows and columns of the patches, the last of the tokens.
    model: section `model`; None for a model without one.
    note: prints a line, '' for none.
  """
  where: str
  predict: Callable[..., types.Outputs]
  features: Callable[[types.Params, types.Batch, str, str], jax.Array]
  objective: Callable[..., tuple[jax.Array, Mapping[str, jax.Array]]]
  loss: Callable[[Float[Array, 'batch classes'], jax.Array],
                 Float[Array, 'batch']]
  activation: Literal['softmax', 'sigmoid']
  train_data: data.Dataset
  open_split: Callable[..., Split]
  grid: tuple[int, int] = (1, 1)
  model: Any = None
  objective_uses_labels: bool = True
  note: Callable[[str], object] = print

  @property
  def classes(self) -> classes.Classes:
    """Classes or regression targets of the model."""
    return self.train_data.as_classes('the model', self.train_data.name)

  def open(self, config: 'EvaluatorConfig', **options: Any) -> Split:
    """Opens the split of an evaluator.

    Raises:
      UserError: if the evaluator uses the head of the model, and the split has
        other classes or targets; see `classes.match`.
    """
    split = self.open_split(
        config.split, config.source, batch_size=config.batch_size,
        head_classes=config.uses_head, **options)
    if not config.uses_head:
      return split
    ours, targets = self.classes, self.train_data.targets
    theirs = split.dataset.as_classes('the data', split.dataset.title)
    if bool(split.dataset.targets) != bool(targets):
      raise UserError(
          f'{self.where}: {ours.title} predicts {_describe(ours, targets)}, '
          f'but {split.dataset.title} has '
          f'{_describe(theirs, split.dataset.targets)}. Use data with '
          f'the labels that it predicts: --config.{self.where}.source=DATA' + (
              ', where the labels of a table are its columns --config.data.'
              f'table.label={",".join(targets)}.' if targets else '.'))
    numbers, note = classes.match(theirs, ours)
    assert not numbers, 'open_split(head_classes=True) renumbers them.'
    # Data without names are compared with themselves at most.
    if split.dataset.class_names or self.train_data.class_names:
      self.note(note)
    return split

  def check_classes(self, split: Split, *, single: bool = False) -> None:
    """Raises for regression targets or, with `single`, several labels."""
    if split.dataset.targets:
      raise UserError(
          f'{self.where} measures classes, but the labels of '
          f'{split.dataset.title} are regression targets '
          f'({", ".join(split.dataset.targets)}). Use '
          f'--config.{self.where}.name=regression.')
    if single and split.dataset.multi_label:
      raise UserError(
          f'{self.where} needs one label per image, but '
          f'{split.dataset.title} has several.')


def _describe(labels: classes.Classes, targets: tuple[str, ...]) -> str:
  kind = 'regression targets' if targets else 'classes'
  return f'{kind} ({classes.shorten(labels.names)})' if labels.names else kind


@dataclasses.dataclass(frozen=True)
class Mistake:
  """A wrong prediction; `read` returns the image as stored, and its name."""
  read: Callable[[], tuple[np.ndarray, str]]
  label: int
  prediction: int
  confidence: float


Printed = tuple[list[str], list[list[Any]]]  # Headings and rows.


@dataclasses.dataclass(frozen=True)
class Result:
  """Result of an evaluation.

  Attributes:
    metrics: numbers by name.
    tables: arrays behind the metrics, by name.
    class_names: names of the classes or targets in the tables, if known.
    mistakes: wrong predictions, the most confident first.
    images: returns uint8 images [height, width, channels] to draw with the
      tables.
    printed: headings and rows to print in place of the metrics, if any.
    details: title, headings and rows of further tables to print.
  """
  metrics: dict[str, float]
  tables: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  class_names: tuple[str, ...] | None = None
  mistakes: tuple[Mistake, ...] = ()
  images: Callable[[], list[np.ndarray]] = list
  printed: Printed | None = None
  details: tuple[tuple[str, Printed], ...] = ()

  def metrics_of(self, evaluator: str) -> dict[str, float]:
    """Returns the metrics by 'evaluator/metric'."""
    return {f'{evaluator}/{key}': value for key, value in self.metrics.items()}

  def name_of(self, index: int) -> str:
    """Returns the name of a class."""
    return self.class_names[index] if self.class_names else f'class {index}'


# Takes parameters and a callback for each batch, which may raise to stop.
Evaluate = Callable[[types.Params, OnBatch], Result]


@dataclasses.dataclass(frozen=True)
class EvaluatorConfig:
  """Fields of every entry of the section `evals`.

  Attributes:
    name: kind of the evaluator, one of `registry.EVALUATORS` or 'module:Name'
      (docs/extend.md); 'auto' by default.
    split: TFDS split string, such as 'train[98%:]'; '' is the split of
      published results or, of your own files, the one that is held out.
    source: dataset; '' is the training dataset.
    every: interval during training; None evaluates at the end only. 'auto' is
      10 % of the run, or more if evaluations would read more images than
      training.
    at_start: also evaluates the initial weights.
    batch_size: global batch size; None uses the microbatch size of training.
    flip: averages the outputs for each image and its mirror image.
  """
  name: str
  split: str = ''
  source: str = ''
  every: fields.Free[schema.Duration | Literal['auto'] | None] = None
  at_start: fields.Free[bool] = False
  batch_size: fields.Free[int | None] = None
  flip: bool = False

  # Whether the data must have the classes of the model's head.
  uses_head: ClassVar[bool] = True
  # Whether the images must have labels.
  uses_labels: ClassVar[bool] = True
  # Whether the metrics of the training objective are reported too.
  reports_objective: ClassVar[bool] = False
  # Field with the split that the evaluator is fitted to, disjoint from `split`.
  fit_field: ClassVar[str] = ''
  # Keys of earlier versions, which are ignored in saved configs.
  ended: ClassVar[tuple[str, ...]] = ()

  @property
  def fit_split(self) -> str | None:
    """The split that the evaluator is fitted to, if any."""
    return getattr(self, self.fit_field) if self.fit_field else None

  @property
  def reads_head(self) -> bool:
    """Whether the results depend on the parameters of the head."""
    return self.uses_head

  def resolve(self, dataset: data.Metadata) -> 'EvaluatorConfig':
    """Returns the config with the settings that depend on the labels."""
    del dataset
    return self

  def metrics(self) -> tuple[Metric, ...]:
    """Returns all metrics that may be reported, the default one first."""
    raise NotImplementedError

  def metrics_on(self, dataset: data.Metadata) -> tuple[str, ...]:
    """Returns the metrics reported for such data, the default one first."""
    del dataset
    return metrics_lib.names(self.metrics())

  def build(self, context: Context) -> Evaluate:
    """Opens the data, or raises if it is missing or does not fit the model."""
    raise NotImplementedError
