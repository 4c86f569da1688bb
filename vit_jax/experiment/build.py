"""Config + devices -> Experiment: everything wired, nothing allocated.

The only module that knows all the parts. What it returns can be trained,
evaluated, or merely compiled; no array exists until `init_state` is called.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import optax

from vit_jax import data
from vit_jax import evals
from vit_jax import models
from vit_jax import objectives
from vit_jax import optim
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.experiment import batches as batches_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import sharding
from vit_jax.training import cost
from vit_jax.training import flops
from vit_jax.training import step as step_lib
from vit_jax.weights import initialize


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A wired experiment.

  Attributes:
    config: the config, with what the data decides filled in.
    mesh: devices.
    dataset: what is trained on.
    model: the linen module.
    total_steps: length of training.
    schedule: learning rate at a step.
    tx: the optimizer, with that schedule.
    abstract_state: shapes, types and shardings of the state.
    abstract_batch: those of a global batch.
    shardings: the shardings of the state.
    axes: names of the axes of each parameter, by path name.
    trainable: a tree of booleans like the parameters: False where frozen.
    init_state: makes the state of step 0.
    empty_metrics: makes the running metrics of no step.
    build_step: makes, once, a `train_step` that computes a batch in so many
      parts.
    evaluators: by name; each a function of parameters to numbers.
    build_evaluators: makes `evaluators` for a training in so many parts.
    unreadable: what could not be read, where the config says to skip it.
  """
  config: config_lib.Config
  mesh: jax.sharding.Mesh
  dataset: data.Dataset
  model: nn.Module
  total_steps: int
  schedule: Callable[[Any], Any]
  tx: optax.GradientTransformation
  abstract_state: types.TrainState
  abstract_batch: Mapping[str, jax.ShapeDtypeStruct]
  shardings: types.TrainState
  axes: Mapping[str, sharding.Axes]
  trainable: Any
  init_state: Callable[[], types.TrainState]
  empty_metrics: Callable[[], Any]
  build_step: Callable[[int], Any]
  evaluators: Mapping[str, evals.Evaluator]
  build_evaluators: Callable[[int], Mapping[str, evals.Evaluator]]
  unreadable: data.UnreadableLog

  @property
  def train_step(self) -> Any:
    """Jitted; state and batch to state and the batch's mean loss."""
    return self.build_step(self.config.parts)

  @property
  def num_trainable(self) -> int:
    """Elements of the parameters that are not frozen."""
    return sum(math.prod(leaf.shape) for leaf, trained in zip(
        jax.tree.leaves(self.abstract_state.params),
        jax.tree.leaves(self.trainable)) if trained)

  @property
  def steps_per_epoch(self) -> float:
    """Updates in a pass over the training split."""
    return self.dataset.num_examples / self.config.batch_size

  def is_due(self, every: schema.Duration, step: int) -> bool:
    """Returns whether what happens `every` so often does after `step`."""
    return every.is_due(
        step, batch_size=self.config.batch_size, total_steps=self.total_steps,
        num_examples=self.dataset.num_examples)

  def batches(
      self, *, start_step: int, tally: data.Tally | None = None,
  ) -> Generator[types.Batch, None, None]:
    """Yields the global batches of steps `start_step`, `start_step` + 1, ...

    `tally` counts what could not be read of this process's rows.
    """
    parts, num_parts = multihost.batch_shards(self.mesh)
    local = data.train_batches(
        self.config.data, self.dataset, seed=self.config.seed,
        batch_size=self.config.batch_size, start_step=start_step,
        parts=parts, num_parts=num_parts, tally=tally)
    return batches_lib.sharded(local, self.mesh)

  def in_parts(self, parts: int) -> 'Experiment':
    """Returns the same experiment, each batch of it computed in `parts`.

    Raises:
      ValueError: if the batch does not divide so.
    """
    batches_lib.check_size(
        'batch_size', self.config.batch_size, self.mesh, parts)
    other = dataclasses.replace(
        self, config=dataclasses.replace(self.config, accumulation=parts),
        evaluators=(self.evaluators if parts == self.config.parts
                    else self.build_evaluators(parts)))
    # What was counted stays: an image costs the same in any part.
    vars(other).update(
        (name, value) for name, value in vars(self).items()
        if name in ('flops_per_image', 'training_flops_per_image'))
    return other

  @functools.cached_property
  def flops_per_image(self) -> int:
    """Operations of a forward pass over one image, as it is trained on."""
    def forward(params, images, inputs):
      return model.apply({'params': params}, images, **inputs)['logits']

    model = self.countable_model(remat='none')
    image = self.abstract_batch['image']
    return flops.count(
        forward, self.abstract_state.params,
        jax.ShapeDtypeStruct((1, *image.shape[1:]), 'float32'),
        objectives.training_inputs(
            self.config.objective, self.config.model,
            image_shape=self.config.data.image_shape))

  @functools.cached_property
  def training_flops_per_image(self) -> int:
    """Operations of training on one image.

    Three forward passes, as the paper counts. Where parameters are frozen, what
    the gradient of the others takes, rematerialisation left out: hardly more
    than one forward pass for a linear probe.
    """
    if all(jax.tree.leaves(self.trainable)):
      return cost.training_flops(self.flops_per_image)
    return self.gradient_flops(self.countable_model(remat='none'))

  def countable_model(self, *, remat: Any) -> nn.Module:
    """Returns the same model, all of whose operations its jaxpr shows.

    Args:
      remat: what the backward pass computes again.
    """
    return objectives.build_model(
        self.config.objective, dataclasses.replace(
            models.without_fused_kernels(self.config.model), remat=remat),
        image_shape=self.config.data.image_shape,
        num_classes=self.dataset.num_classes)

  def gradient_flops(self, model: nn.Module) -> int:
    """Returns the operations of a model's gradient on an image.

    Args:
      model: with the experiment's parameters; frozen ones have no gradient.
    """
    def loss(params, images):
      params = step_lib.stop_frozen(params, self.trainable)
      return model.apply({'params': params}, images)['logits'].sum()

    image = self.abstract_batch['image']
    return flops.count(
        jax.value_and_grad(loss), self.abstract_state.params,
        jax.ShapeDtypeStruct((1, *image.shape[1:]), 'float32'))

  def start_from(
      self, state: types.TrainState, source: types.Params,
      source_config: Mapping[str, Any],
  ) -> tuple[types.TrainState, list[initialize.Row]]:
    """Returns the state with a checkpoint's parameters, and each one's fate.

    Args:
      state: a new state, at step 0.
      source: parameters of the checkpoint.
      source_config: the sections `model` and `data` of its config.

    Raises:
      ValueError: if the parameters do not fit the model.
    """
    params, rows = self.adapt(
        source, source_config, initial=multihost.fetch(state.params),
        config=self.config.init)
    average = None if state.average is None else jax.tree.map(
        lambda x: x.copy(), params)
    return dataclasses.replace(state, params=params, average=average), rows

  def check_start_from(self, earlier: 'Experiment') -> None:
    """Raises if this run could not start from another's checkpoint.

    Takes the shapes alone, so that it is known before the other is trained.

    Raises:
      ValueError: with the parameters that do not fit.
    """
    def zeros(shape: jax.ShapeDtypeStruct) -> np.ndarray:
      # Of no size in memory, whatever its shape.
      return np.broadcast_to(np.zeros((), shape.dtype), shape.shape)

    self._fit(
        jax.tree.map(zeros, earlier.abstract_state.params),
        config_lib.to_plain(earlier.config), config=self.config.init,
        initial=jax.tree.map(zeros, self.abstract_state.params))

  def adapt(
      self, source: types.Params, source_config: Mapping[str, Any], *,
      initial: types.Params, config: initialize.InitConfig,
  ) -> tuple[types.Params, list[initialize.Row]]:
    """Returns a checkpoint's parameters as this model's, on its devices.

    Args:
      source: parameters of the checkpoint.
      source_config: the sections `model` and `data` of its config.
      initial: this model's own, arrays or shapes.
      config: what may be new, and what left out.

    Raises:
      ValueError: if the parameters do not fit the model.
    """
    params, rows = self._fit(
        source, source_config, initial=initial, config=config)
    return multihost.put(params, self.shardings.params), rows

  def _fit(
      self, source: types.Params, source_config: Mapping[str, Any], *,
      initial: types.Params, config: initialize.InitConfig,
  ) -> tuple[types.Params, list[initialize.Row]]:
    """As `adapt`, but leaves the parameters on the host."""
    old_size = data.parse(
        {'resolution': source_config['data']['resolution']}).size
    resize = functools.partial(
        models.resize, method=config.positions,
        old_grid=models.grid(models.parse(source_config['model']), old_size),
        new_grid=grid(self.config))
    return initialize.adapt(source, initial, config=config, resize=resize)


def grid(config: config_lib.Config) -> tuple[int, int]:
  """Returns rows and columns of the patches of an image."""
  return models.grid(config.model, config.data.size)


def build(
    config: config_lib.Config, devices: Sequence[jax.Device] | None = None, *,
    expected_data: bool = False,
) -> Experiment:
  """Wires an experiment.

  Args:
    config: the typed config.
    devices: devices of the mesh; by default all there are.
    expected_data: takes the sizes of the data from the table of data sets: the
      step can be compiled, but nothing can be read.

  Raises:
    ValueError: if the sections do not fit each other, the data or the devices.
  """
  dataset = data.open_dataset(config.data, expected=expected_data)
  config = _completed(config, dataset, expected=expected_data)
  sizes = {'batch_size': config.batch_size,
           'num_examples': dataset.num_examples}
  total_steps = config.total.to_steps(**sizes)

  model = objectives.build_model(
      config.objective,
      models.for_devices(config.model, devices or jax.devices()),
      image_shape=config.data.image_shape, num_classes=dataset.num_classes)
  loss = _objective(config, dataset, model, expected=expected_data)
  evaluators_lib.check_best(config, dataset, loss, expected=expected_data)
  abstract_batch = data.abstract_batch(
      config.data, dataset, config.batch_size)
  init_key, step_key = jax.random.split(jax.random.key(config.seed))
  boxed = jax.eval_shape(
      lambda: models.init(model, init_key, abstract_batch['image']))
  mesh = mesh_lib.build(
      config.mesh, devices, num_params=tree.num_elements(boxed))
  batches_lib.check_size('batch_size', config.batch_size, mesh, config.parts)
  specs = sharding.param_specs(boxed, mesh)
  optimizer = optim.build(
      config.optimizer, nn.unbox(boxed), total_steps=total_steps,
      to_steps=functools.partial(_to_steps, total_steps=total_steps, **sizes))

  def init_state() -> types.TrainState:
    params = models.init(model, init_key, abstract_batch['image'])
    return step_lib.init_state(
        params, tx=optimizer.tx, loss=loss, averaging=config.averaging)

  abstract_state = jax.eval_shape(init_state)
  shardings = sharding.state_shardings(abstract_state, specs, mesh)
  build_step = functools.cache(functools.partial(
      _jitted_step, config=config, dataset=dataset, loss=loss,
      optimizer=optimizer, key=step_key, mesh=mesh, shardings=shardings))

  unreadable = data.UnreadableLog()
  open_data = evaluators_lib.opener(config, expected=expected_data)
  if not expected_data:
    evaluators_lib.check_apart(config, open_data)

  def build_evaluators(parts: int) -> dict[str, evals.Evaluator]:
    return evaluators_lib.build(
        dataclasses.replace(config, accumulation=parts), model=model,
        objective=loss, trained_on=dataset, mesh=mesh, unreadable=unreadable,
        open_data=open_data)

  on_batch = NamedSharding(mesh, sharding.BATCH)
  return Experiment(
      config=config, mesh=mesh, dataset=dataset, model=model,
      total_steps=total_steps, schedule=optimizer.schedule, tx=optimizer.tx,
      abstract_state=_with_sharding(abstract_state, shardings),
      abstract_batch={
          name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=on_batch)
          for name, leaf in abstract_batch.items()},
      shardings=shardings, axes=sharding.axis_names(boxed),
      trainable=optimizer.trainable,
      init_state=jax.jit(init_state, out_shardings=shardings),
      empty_metrics=lambda: multihost.put(
          step_lib.empty_metrics(loss, abstract_state.params),
          shardings.metrics),
      build_step=build_step,
      evaluators=build_evaluators(config.parts),
      build_evaluators=build_evaluators, unreadable=unreadable)


def _objective(
    config: config_lib.Config, dataset: data.Dataset, model: nn.Module, *,
    expected: bool,
) -> Any:
  """Returns what is trained on: see `objectives.build`."""
  return objectives.build(
      config.objective, model, multi_label=dataset.multi_label,
      targets=bool(dataset.targets), mean=config.data.value_scale['mean'],
      std=config.data.value_scale['std'],
      class_weights=_class_weights(config, dataset, expected=expected))


def _jitted_step(
    parts: int, *, config: config_lib.Config, dataset: data.Dataset, loss: Any,
    optimizer: optim.Optimizer, key: jax.Array, mesh: jax.sharding.Mesh,
    shardings: types.TrainState,
) -> Any:
  """Returns the training step that computes a batch in so many parts."""
  # Not of convolutions: a kernel's gradient for each device apart is one in
  # groups, and to split these the compiler sends the images around.
  alone = parts > 1 and getattr(config.model, 'backbone', None) is None
  replicas = mesh_lib.replicas(mesh) if alone else 1
  step = step_lib.build(
      loss=loss, tx=optimizer.tx, key=key,
      prepare=functools.partial(
          batches_lib.prepare(config.data, dataset), train=True),
      accumulation=parts, replicas=replicas, averaging=config.averaging,
      trainable=optimizer.trainable)
  return jax.jit(
      # Where each device sees no rows but its own, there is nothing to keep.
      sharding.keep_batch_split(step, mesh) if replicas == 1 else step,
      in_shardings=(shardings, NamedSharding(mesh, sharding.BATCH)),
      out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())),
      donate_argnums=0)



def _completed(
    config: config_lib.Config, dataset: data.Dataset, *, expected: bool,
) -> config_lib.Config:
  """Returns the config with what it leaves to the data filled in.

  Raises:
    ValueError: if it asks for what such data has not.
  """
  data.check_training(config.data, dataset)
  return dataclasses.replace(
      config, model=_with_classes(config, dataset),
      data=data.measured(config.data, dataset, expected=expected),
      objective=objectives.resolve(
          config.objective, targets=bool(dataset.targets),
          multi_label=dataset.multi_label))


def _class_weights(
    config: config_lib.Config, dataset: data.Dataset, *, expected: bool,
) -> np.ndarray | None:
  """Returns the weights of the classes in the loss, if it has any.

  Raises:
    ValueError: if classes are drawn more evenly as well.
  """
  section = config.objective
  if section.name != 'supervised' or section.class_weights == 'none':
    return None
  if config.data.sampling != 'natural':
    raise ValueError(
        f'objective.class_weights is {section.class_weights!r} and '
        f'data.sampling {config.data.sampling!r}: both make up for classes '
        'that are rare, and together for twice as much. Leave one out.')
  if expected:  # A plan knows of no labels; the step is the same.
    return np.ones(dataset.num_classes, np.float32)
  labels = data.class_labels(dataset, asked='objective.class_weights')
  return objectives.class_weights(
      section, np.bincount(labels, minlength=dataset.num_classes))


def _with_classes(
    config: config_lib.Config, dataset: data.Dataset,
) -> models.ModelConfig:
  asked = config.model.num_classes
  if asked and asked != dataset.num_classes:
    raise ValueError(
        f'model.num_classes is {asked}, but {dataset.name} has '
        f'{dataset.num_classes} '
        + ('targets' if dataset.targets else 'classes')
        + '. Leave it out to take those.')
  return dataclasses.replace(config.model, num_classes=dataset.num_classes)


def _to_steps(duration: Any, **sizes: Any) -> int:
  return duration.to_steps(**sizes)


def _with_sharding(shapes: Any, shardings: Any) -> Any:
  return jax.tree.map(
      lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
      shapes, shardings)
