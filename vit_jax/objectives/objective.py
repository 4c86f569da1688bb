"""Interface between objectives and the experiment that trains with them.

    ObjectiveConfig + Context ─▶ build ─▶ Objective(params, batch, key)
                                            ─▶ losses and metrics of examples

An objective sees its own section and a `Context`, never the whole config. The
rest of the program uses this interface only, not the types of the records.
"""

from collections.abc import Callable, Collection, Mapping
import dataclasses
from typing import Any, ClassVar, Protocol, runtime_checkable

import flax.linen as nn
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray
import numpy as np

from vit_jax import data
from vit_jax import metrics as metrics_lib
from vit_jax import types
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.models import factory
from vit_jax.models import model_config

Images = Float[Array, 'batch height width channels']  # Pixels in [0, 1].
Metric = metrics_lib.Metric
# The loss and other metrics of each example.
Losses = tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]

# Names of parameters besides the model's. Checkpoints lack the teacher; loading
# drops the projector (`factory.PRETRAINING_ONLY`).
TEACHER, PROJECTOR = 'teacher', 'projector'


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
  """The part of an experiment that objectives see; evaluators use its `apply`.

  Attributes:
    model: the module to train, from `ObjectiveConfig.build_model`.
    dataset: facts about the training data.
    class_counts: counts the training examples of each class.
    value_scale: normalises pixels in [0, 1].
    teachers: weights from `ObjectiveConfig.open_teachers`.
    data_config: section `data`.
  """
  model: Any
  dataset: data.Metadata = data.Metadata(num_classes=0)
  class_counts: Callable[[], Int[np.ndarray, 'classes']] | None = None
  value_scale: value_scale_lib.ValueScale = value_scale_lib.ValueScale()
  teachers: tuple[Any, ...] = ()
  data_config: data.DataConfig | None = None

  def apply(
      self, params: types.Params, pixels: Images,
      key: PRNGKeyArray | None = None, *, train: bool = False, **inputs: Any,
  ) -> types.Outputs:
    """Normalises pixels and applies the model, as in training and evaluation.

    `train` uses dropout with the random `key`.
    """
    return self.model.apply(
        {'params': params}, self.value_scale.normalize(pixels), train=train,
        rngs={} if key is None else {'dropout': key}, **inputs)


@runtime_checkable
class Objective(Protocol):
  """A loss over batches of images.

  Attributes:
    metrics: names of the metrics returned besides the loss, which the record
      of the objective declares.
  """
  metrics: Collection[str]

  def draw(self, images: Images, key: PRNGKeyArray) -> dict[str, jax.Array]:
    """Returns random inputs of a batch, which are added to it.

    Drawn for the whole batch, they do not depend on devices and microbatches.
    The first axis of each is that of the batch.
    """
    return {}

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> Losses:
    """Returns the loss and metrics of each example.

    Args:
      params: parameters of the model, and `extra_params`.
      batch: images in [0, 1], labels, mask and, in training, the inputs from
        `draw`.
      key: random key of dropout, and of inputs that the batch lacks.
      train: whether to use dropout and stochastic depth.
    """
    ...

  def extra_params(
      self, params: types.Params, key: PRNGKeyArray,
      images: jax.ShapeDtypeStruct,
  ) -> dict[str, Any]:
    """Returns initial parameters besides the model's, by top-level name.

    Those under `PROJECTOR` are dropped when the model is loaded.

    Args:
      params: initial parameters of the model.
      key: random key.
      images: shape of a batch of images.
    """
    return {}

  def extra_inputs(
      self, image: jax.ShapeDtypeStruct,
  ) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of the model's training inputs for one image.

    `images`, if present, replaces the image itself. FLOPs are counted for them.
    """
    return jax.eval_shape(self.draw, image, jax.random.key(0))


@runtime_checkable
class CoupledObjective(Objective, Protocol):
  """An objective that compares the examples of a batch.

  With microbatches, the step embeds each of them and compares all embeddings.
  """

  def embed(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> Float[Array, 'batch *embedding']:
    """Returns embeddings; examples must not affect each other."""
    ...

  def compare(
      self, embeddings: Float[Array, 'batch *embedding'],
      mask: Float[Array, 'batch'], key: PRNGKeyArray,
  ) -> Losses:
    """Returns the loss and metrics of each example of a whole batch."""
    ...

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> Losses:
    return self.compare(
        self.embed(params, batch, key, train=train), batch['mask'], key)


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
  """Section `objective`; its `name` selects the record of an objective.

  Attributes:
    name: the objective, one of `registry.OBJECTIVES` or 'module:Name'
      (docs/extend.md); 'supervised' by default.
  """
  name: str

  # Whether the head is trained with labels of images, or with masks.
  uses_labels: ClassVar[bool] = False
  uses_masks: ClassVar[bool] = False
  # Whether teachers must have the classes of the data.
  shares_classes: ClassVar[bool] = False

  @property
  def trains_head(self) -> bool:
    """Whether the head of the model is trained."""
    return self.uses_labels or self.uses_masks

  @property
  def label_loss(self) -> Any:
    """`SupervisedConfig.loss` of the evaluators that compare with labels."""
    return 'auto'

  def open_teachers(self, open_one: Callable[..., Any]) -> tuple[Any, ...]:
    """Returns the weights of frozen teachers.

    `open_one(address, which)` opens those of one; `which` is the 'latest' or
    the 'best' checkpoint of a run.
    """
    del open_one
    return ()

  def metrics(self) -> tuple[Metric, ...]:
    """Returns all metrics that may be reported besides the loss."""
    return ()

  def resolve(self, dataset: data.Metadata) -> 'ObjectiveConfig':
    """Returns the record with the settings that depend on the labels.

    Raises a `UserError` if a setting does not apply to the labels.
    """
    del dataset
    return self

  def with_labels(self, dataset: data.Dataset) -> data.Dataset:
    """Returns the dataset with what the objective needs of its examples.

    Raises:
      UserError: if they have no such labels.
    """
    return dataclasses.replace(dataset, fields={})

  def without_teacher(self) -> 'ObjectiveConfig':
    """Returns the objective for evaluation, which needs no teacher."""
    return self

  def build_model(
      self, model: model_config.ModelConfig, *,
      image_shape: tuple[int, int, int], num_classes: int,
  ) -> nn.Module:
    """Returns the module to train, which may extend the model.

    Raises:
      UserError: if the objective does not support the model.
    """
    del image_shape
    return factory.build(model, num_classes=num_classes)

  def build(self, context: Context) -> Objective:
    """Returns the loss.

    Raises:
      UserError: if the objective does not support the labels.
    """
    raise NotImplementedError
