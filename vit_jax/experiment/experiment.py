"""An experiment: config, data, model, objective, optimizer and mesh.

Nothing is allocated until `init_state` is called.
"""

from collections.abc import Callable, Generator, Mapping
import dataclasses
import functools
import math
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from vit_jax import data
from vit_jax import evals
from vit_jax import models
from vit_jax import objectives
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.experiment import config as config_lib
from vit_jax.models import lora
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import sharding
from vit_jax.training import flops
from vit_jax.training import step as step_lib
from vit_jax.weights import initialize
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.configs import preprocessing

# Top-level parameters that the model itself does not have.
_NOT_IN_MODEL = (lora.ROOT, objectives.TEACHER)


@dataclasses.dataclass(frozen=True)
class Experiment:
  """Components of an experiment, and its abstract state and batch.

  Attributes:
    config: the config, with settings that depend on the data filled in.
    mesh: devices.
    dataset: training data.
    model: the linen module.
    objective: the loss.
    total_steps: length of training.
    schedule: learning rate at a step.
    abstract_state: shapes, dtypes and shardings of the state.
    abstract_batch: shapes, dtypes and shardings of a global batch.
    shardings: shardings of the state.
    axes: axis names of each parameter, by path.
    trainable: tree of booleans like the parameters; False where frozen.
    teacher: the loaded teacher of the objective, if any.
    init_state: returns the state of step 0.
    empty_metrics: returns running metrics of zero steps.
    build_step: returns the jitted `train_step` for a number of microbatches.
    build_histograms: the same for `gradient_histograms`.
    evaluators: evaluators by name.
    build_evaluators: returns `evaluators` for a number of microbatches.
    open_data: opens evaluation data; see `evaluators.OpenData`.
    unreadable: log of unreadable images, if the config skips them.
  """
  config: config_lib.Config
  mesh: jax.sharding.Mesh
  dataset: data.Dataset
  model: nn.Module
  objective: objectives.Objective
  total_steps: int
  schedule: Callable[[Any], Any]
  abstract_state: types.TrainState
  abstract_batch: Mapping[str, jax.ShapeDtypeStruct]
  shardings: types.TrainState
  axes: Mapping[str, sharding.Axes]
  trainable: Any
  teacher: Any
  init_state: Callable[[], types.TrainState]
  empty_metrics: Callable[[], Any]
  build_step: Callable[[int], Any]
  build_histograms: Callable[[int], Any]
  evaluators: Mapping[str, evals.Evaluate]
  build_evaluators: Callable[[int], Mapping[str, evals.Evaluate]]
  open_data: Callable[..., tuple[data.Dataset, Any]]
  unreadable: data.UnreadableLog

  @property
  def train_step(self) -> Any:
    """Jitted (state, batch) -> (state, mean loss)."""
    return self.build_step(self.config.num_microbatches)

  @property
  def gradient_histograms(self) -> Any:
    """Jitted (state, batch) -> counts and edges by parameter."""
    return self.build_histograms(self.config.num_microbatches)

  @property
  def num_trainable(self) -> int:
    """Number of parameters that are not frozen."""
    return sum(math.prod(leaf.shape) for leaf, trained in zip(
        jax.tree.leaves(self.abstract_state.params),
        jax.tree.leaves(self.trainable)) if trained)

  @property
  def model_params(self) -> types.Params:
    """Shapes of the parameters of the model, with any adapters merged."""
    return tree.without(jax.eval_shape(
        functools.partial(lora.merge, config=self.config.lora),
        self.abstract_state.params), *_NOT_IN_MODEL)

  @property
  def steps_per_epoch(self) -> float:
    """Updates per pass over the training split."""
    return self.dataset.num_examples / self.config.batch_size

  def is_due(self, every: schema.Duration | str, step: int) -> bool:
    """Returns whether an interval of length `every` ends with `step`."""
    assert isinstance(every, schema.Duration)  # `build` replaces 'auto'.
    return every.is_due(step, **self.sizes)

  @property
  def sizes(self) -> dict[str, int]:
    """Sizes that convert durations to steps; see `schema.Duration`."""
    return {'batch_size': self.config.batch_size,
            'num_examples': self.dataset.num_examples,
            'total_steps': self.total_steps}

  def batches(
      self, *, start_step: int,
      unreadable: data.UnreadableCounter | None = None,
  ) -> Generator[types.Batch, None, None]:
    """Yields the global batches of steps `start_step`, `start_step` + 1, ...

    `unreadable` counts unreadable images of this process.
    """
    shards, num_shards = multihost.batch_shards(self.mesh)
    local = data.train_batches(
        self.config.data, self.dataset, seed=self.config.seed,
        batch_size=self.config.batch_size, start_step=start_step,
        shards=shards, num_shards=num_shards, unreadable=unreadable)
    return multihost.shard_batches(local, self.mesh)

  def evaluate(
      self, name: str, params: types.Params,
      on_batch: Callable[[], None] = lambda: None,
  ) -> evals.Result:
    """Runs an evaluator; `on_batch` runs after each batch, and may raise."""
    return self.evaluators[name](params, on_batch)

  def with_microbatches(self, number: int) -> 'Experiment':
    """Returns the same experiment with another number of microbatches.

    Raises a `ValueError` if the batch does not divide into them.
    """
    mesh_lib.check_batch_size(
        'batch_size', self.config.batch_size, self.mesh, number)
    other = dataclasses.replace(
        self, config=dataclasses.replace(self.config, accumulation=number),
        evaluators=(self.evaluators if number == self.config.num_microbatches
                    else self.build_evaluators(number)))
    # Keep cached counts, which do not depend on the microbatches.
    vars(other).update(
        (name, value) for name, value in vars(self).items()
        if name in ('flops_per_image', 'training_flops_per_image'))
    return other

  @functools.cached_property
  def flops_per_image(self) -> int:
    """FLOPs of the forward pass of one image, as in training."""
    return flops.count(
        self._outputs(self.countable_model(remat='none')),
        self.model_params, self._model_inputs)

  @property
  def _model_inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the inputs of the model for one image in training."""
    shape = self.abstract_batch['image'].shape
    return {
        'images': jax.ShapeDtypeStruct((1, *shape[1:]), 'float32'),
        **self.objective.extra_inputs(
            jax.ShapeDtypeStruct((1, *shape[1:]), 'float32'))}

  def _outputs(self, model: nn.Module) -> Callable[..., Any]:
    """Returns the function from parameters and inputs to trained outputs."""
    def apply(params: types.Params, inputs: Mapping[str, Any]) -> Any:
      outputs = model.apply({'params': params}, **inputs)
      return outputs['predictions' if 'predictions' in outputs else 'logits']

    return apply

  @functools.cached_property
  def training_flops_per_image(self) -> int:
    """FLOPs of training on one image, without rematerialisation.

    Three forward passes, as in Table 6 of the paper: the backward pass computes
    gradients of inputs and of parameters. With frozen parameters, counts the
    remaining gradient instead: little more than one forward pass for a linear
    probe. A teacher adds one forward pass.
    """
    teacher = 0
    if self.teacher is not None:
      from vit_jax.objectives import distill
      teacher = flops.count(
          functools.partial(distill.outputs, self.teacher), self.teacher.shapes,
          distill.image(self.teacher))
    if all(jax.tree.leaves(tree.without(self.trainable, *_NOT_IN_MODEL))):
      return teacher + 3 * self.flops_per_image
    return teacher + self.gradient_flops(self.countable_model(remat='none'))

  def countable_model(self, *, remat: Any) -> nn.Module:
    """Returns the model without kernels that hide FLOPs from the jaxpr."""
    return self.config.objective.build_model(
        dataclasses.replace(
            models.without_fused_kernels(self.config.model), remat=remat),
        image_shape=self.config.data.image_shape,
        num_classes=self.dataset.num_classes)

  def gradient_flops(self, model: nn.Module) -> int:
    """Returns the FLOPs of the gradient of a model on one image."""
    # The gradient of an adapter needs that of its kernel.
    adapted = lora.names(self.trainable)
    trainable = tree.map_with_name(
        lambda name, trained: trained or name in adapted,
        tree.without(self.trainable, *_NOT_IN_MODEL))

    def loss(params, inputs):
      params = step_lib.stop_frozen(params, trainable)
      return self._outputs(model)(params, inputs).sum()

    return flops.count(
        jax.value_and_grad(loss), self.model_params, self._model_inputs)

  def start_from(
      self, state: types.TrainState, weights: weights_lib.Weights,
  ) -> tuple[types.TrainState, list[initialize.Row]]:
    """Returns the state with initial weights; see `adapt`."""
    params, rows = self.adapt(
        weights, initial=multihost.fetch(state.params),
        config=self.config.init)
    average = None if state.average is None else jax.tree.map(
        lambda x: x.copy(), params)
    return dataclasses.replace(state, params=params, average=average), rows

  def without_base(self, state: types.TrainState) -> types.TrainState:
    """Returns the state to save, without the weights of other models.

    These are the teacher and, with adapters, all frozen parameters.
    """
    if self.config.lora.rank:
      return state.map_params(
          lambda params: tree.select(params, self.trainable))
    return state.map_params(
        lambda params: tree.without(params, objectives.TEACHER))

  def with_base(
      self, state: types.TrainState, base: types.Params | None = None,
  ) -> types.TrainState:
    """Returns a state with the weights that checkpoints lack.

    Args:
      state: an initial or restored state.
      base: parameters with those that adapters need.
    """
    def complete(params: types.Params) -> types.Params:
      # Copied, since parameters and average are donated to the step.
      params = tree.update(jax.tree.map(lambda x: x.copy(), base or {}), params)
      return params if self.teacher is None else {
          **params, objectives.TEACHER: multihost.put(
              self.teacher.read(),
              self.shardings.params[objectives.TEACHER])}

    return state.map_params(complete)

  def check_start_from(self, earlier: 'Experiment') -> None:
    """Raises if this run cannot start from a checkpoint of an earlier stage.

    Compares classes and shapes only, before the earlier stage is trained.
    """
    size = earlier.config.data.size
    weights = weights_lib.Weights.of(
        _zeros(earlier.model_params), config=earlier.config.model,
        resolution=size, preprocess=preprocessing.Preprocess(
            size, labels=tuple(earlier.dataset.classes.names)))
    self.match_head(weights, owner='the earlier stage')
    self._fit(weights, config=self.config.init,
              initial=_zeros(self.abstract_state.params))

  def match_head(self, weights: weights_lib.Weights, *, owner: str) -> str:
    """Compares a kept head with the data; see `initialize.match_classes`."""
    if not initialize.num_classes(self.abstract_state.params):
      return ''
    return initialize.match_classes(
        weights, self.dataset.classes, config=self.config.init, owner=owner)

  def adapt(
      self, weights: weights_lib.Weights, *, config: initialize.InitConfig,
      initial: types.Params | None = None,
  ) -> tuple[types.Params, list[initialize.Row]]:
    """Returns weights fitted to this model, on its devices.

    Args:
      weights: the weights.
      config: parameters that may be new or ignored.
      initial: initial parameters of this model; zeros by default.

    Raises:
      ValueError: if the parameters do not fit the model.
    """
    params, rows = self._fit(
        weights, config=config,
        initial=_zeros(self.abstract_state.params) if initial is None
        else initial)
    return multihost.put(params, self.shardings.params), rows

  def _fit(
      self, weights: weights_lib.Weights, *, initial: types.Params,
      config: initialize.InitConfig,
  ) -> tuple[types.Params, list[initialize.Row]]:
    """Implements `adapt` on the host."""
    added = [*_NOT_IN_MODEL]
    if objectives.TEACHER in initial:
      added.append(objectives.PROJECTOR)
    config = dataclasses.replace(config, new=(
        *config.new, *[f'{name}/.*' for name in added if name in initial]))
    params, rows = initialize.fit(
        weights, initial, config=config, grid=models.grid(
            self.config.model, self.config.data.size))
    return params, [row for row in rows if not row.name.startswith(
        f'{objectives.TEACHER}/')]


def _zeros(params: types.Params) -> types.Params:
  """Returns zeros that take no memory."""
  return jax.tree.map(
      lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape),
      params)
