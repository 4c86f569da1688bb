"""Config + devices -> Experiment: everything wired, nothing allocated.

The only module that knows all the parts. What it returns can be trained,
evaluated, or merely compiled; no array exists until `init_state` is called.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
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

from vit_jax import config as config_lib
from vit_jax import data
from vit_jax import evals
from vit_jax import models
from vit_jax import objectives
from vit_jax import optim
from vit_jax import records
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import pretrained
from vit_jax.data import overlap
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import sharding
from vit_jax.training import cost
from vit_jax.training import flops
from vit_jax.training import step as step_lib


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
    train_step: jitted; state and batch to state and the batch's mean loss.
    build_step: makes a `train_step` that computes a batch in so many parts.
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
  train_step: Any
  build_step: Callable[[int], Any]
  evaluators: Mapping[str, evals.Evaluator]
  build_evaluators: Callable[[int], Mapping[str, evals.Evaluator]]
  unreadable: data.UnreadableLog

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

  def is_due(self, every: records.Duration, step: int) -> bool:
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
    parts, num_parts = multihost.batch_parts(self.mesh)
    local = data.train_batches(
        self.config.data, self.dataset, seed=self.config.seed,
        batch_size=self.config.batch_size, start_step=start_step,
        parts=parts, num_parts=num_parts, tally=tally)
    return _sharded(local, self.mesh)

  def in_parts(self, parts: int) -> 'Experiment':
    """Returns the same experiment, each batch of it computed in `parts`.

    Raises:
      ValueError: if the batch does not divide so.
    """
    _check_batch('batch_size', self.config.batch_size, self.mesh, parts)
    other = dataclasses.replace(
        self, config=dataclasses.replace(self.config, accumulation=parts),
        train_step=self.step_in_parts(parts), evaluators=(
            self.evaluators if parts == self.config.parts
            else self.build_evaluators(parts)))
    # What was counted stays: an image costs the same in any part.
    vars(other).update(
        (name, value) for name, value in vars(self).items()
        if name in ('flops_per_image', 'training_flops_per_image'))
    return other

  def step_in_parts(self, parts: int) -> Any:
    """Returns the `train_step` of `in_parts`; nothing else is built."""
    return (self.train_step if parts == self.config.parts
            else self.build_step(parts))

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
            models.written_out(self.config.model), remat=remat),
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
  ) -> tuple[types.TrainState, list[pretrained.Row]]:
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
      initial: types.Params, config: pretrained.InitConfig,
  ) -> tuple[types.Params, list[pretrained.Row]]:
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
      initial: types.Params, config: pretrained.InitConfig,
  ) -> tuple[types.Params, list[pretrained.Row]]:
    """As `adapt`, but leaves the parameters on the host."""
    old_size = data.parse(
        {'resolution': source_config['data']['resolution']}).size
    resize = functools.partial(
        models.resize, method=config.positions,
        old_grid=models.grid(models.parse(source_config['model']), old_size),
        new_grid=grid(self.config))
    return pretrained.adapt(source, initial, config=config, resize=resize)


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
  loss = objectives.build(
      config.objective, model, multi_label=dataset.multi_label,
      targets=bool(dataset.targets), mean=config.data.value_scale['mean'],
      std=config.data.value_scale['std'], class_weights=_class_weights(
          config, dataset, expected=expected_data))
  _check_best(config, dataset, loss, expected=expected_data)
  abstract_batch = data.abstract_batch(
      config.data, dataset, config.batch_size)
  init_key, step_key = jax.random.split(jax.random.key(config.seed))
  boxed = jax.eval_shape(
      lambda: models.init(model, init_key, abstract_batch['image']))
  mesh = mesh_lib.build(
      config.mesh, devices, num_params=tree.num_elements(boxed))
  _check_batch('batch_size', config.batch_size, mesh, config.parts)
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
  on_batch = NamedSharding(mesh, sharding.BATCH)
  prepare = _prepare(config.data, dataset)

  @functools.cache
  def build_step(parts: int) -> Any:
    # Not of convolutions: a kernel's gradient for each device apart is one in
    # groups, and to split these the compiler sends the images around.
    alone = parts > 1 and getattr(config.model, 'backbone', None) is None
    replicas = mesh_lib.replicas(mesh) if alone else 1
    step = step_lib.build(
        loss=loss, tx=optimizer.tx, key=step_key,
        prepare=functools.partial(prepare, train=True), accumulation=parts,
        replicas=replicas, averaging=config.averaging,
        trainable=optimizer.trainable)
    return jax.jit(
        # Where each device sees no rows but its own, there is nothing to keep.
        sharding.keep_batch_split(step, mesh) if replicas == 1 else step,
        in_shardings=(shardings, on_batch),
        out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())),
        donate_argnums=0)

  unreadable = data.UnreadableLog()
  open_split = functools.cache(functools.partial(
      _open_split, config, expected=expected_data))
  if not expected_data:
    _check_apart(config, open_split)

  def build_evaluators(parts: int) -> dict[str, evals.Evaluator]:
    return {
        name: _evaluator(
            name, dataclasses.replace(config, accumulation=parts), model, loss,
            dataset, mesh, unreadable, open_split)
        for name in config.evals}

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
      train_step=build_step(config.parts), build_step=build_step,
      evaluators=build_evaluators(config.parts),
      build_evaluators=build_evaluators, unreadable=unreadable)


def _check_best(
    config: config_lib.Config, trained_on: data.Dataset, objective: Any, *,
    expected: bool,
) -> None:
  """Raises if the best checkpoint's metric is not one of this data.

  Raises:
    ValueError: with those that are.
  """
  name, _, metric = config.checkpoint.best.partition('/')
  section = config.evals.get(name)
  if section is None:
    return
  if section.name == 'objective':
    measured: tuple[str, ...] = ('loss', *objective.measures)
  elif section.name == 'classification' and not section.real_labels:
    dataset = trained_on
    if section.source:
      dataset = data.open_dataset(
          config.data, expected=expected, split=section.split,
          source=section.source)
    measured = evals.classification_metrics(
        multi_label=dataset.multi_label, num_classes=trained_on.num_classes)
  else:
    return
  if metric not in measured:
    raise ValueError(
        f'checkpoint.best is {config.checkpoint.best!r}, which is not measured '
        f'on this data: {name} gives {", ".join(measured)}. Use '
        f'--config.checkpoint.best={name}/{measured[-1]}.')


def _evaluator(
    name: str, config: config_lib.Config, model: nn.Module, objective: Any,
    trained_on: data.Dataset, mesh: jax.sharding.Mesh,
    unreadable: data.UnreadableLog, open_data: Callable[..., Any],
) -> evals.Evaluator:
  where = f'evals.{name}'

  def predict(params: types.Params, batch: types.Batch) -> types.Outputs:
    return model.apply({'params': params}, batch['image'])

  def open_split(
      split: str, source: str = '', *, batch_size: int | None = None,
      per_class: int = 0, seeds: tuple[int, ...] = (0,), real_labels: str = '',
  ) -> evals.Split:
    batch_size = batch_size or eval_batch_size(config)
    _check_batch(f'{where}.batch_size', batch_size, mesh, 1)
    dataset, ranks = open_data(split, source, per_class, seeds, real_labels)
    section = config.data
    if per_class:  # Places in a draw leave none out.
      section = dataclasses.replace(section, eval_unreadable='error')
    return evals.Split(
        name=f'{dataset.name} {dataset.split}', ranks=ranks,
        batches=_eval_batches(
            section, dataset, batch_size, mesh, unreadable),
        num_examples=dataset.num_examples,
        may_miss=_may_miss(section, dataset), num_classes=dataset.num_classes,
        class_names=dataset.class_names, multi_label=dataset.multi_label,
        targets=dataset.targets, target_mean=config.data.target_mean,
        target_std=config.data.target_std)

  # Smoothing is a means of training; what is measured is the labels' loss.
  labelled = _labelled_objective(config, trained_on)
  return evals.build(config.evals[name], evals.Context(
      where=where, open=open_split,
      predict=sharding.keep_batch_split(predict, mesh),
      objective=sharding.keep_batch_split(objective, mesh),
      loss=functools.partial(objectives.loss_of_logits, labelled),
      activation='sigmoid' if labelled.loss == 'sigmoid' else 'softmax',
      num_classes=trained_on.num_classes, targets=trained_on.targets,
      trained_on=trained_on.name))


def _open_split(
    config: config_lib.Config, split: str, source: str, per_class: int,
    seeds: tuple[int, ...], real_labels: str, *, expected: bool,
) -> tuple[data.Dataset, np.ndarray | None]:
  """Opens what an evaluator reads; see `evals.context.Open`.

  Returns:
    The examples, and their ranks in the draws of a few of each class.
  """
  dataset = data.open_dataset(
      config.data, expected=expected, split=split, source=source or None)
  ranks = None
  if per_class and not expected:
    dataset, ranks = data.draw_per_class(dataset, per_class, seeds=seeds)
  if real_labels and not expected:
    dataset = data.with_real_labels(dataset, real_labels)
  return dataset, ranks


def _check_apart(
    config: config_lib.Config, open_data: Callable[..., Any]) -> None:
  """Raises if what few-shot or k-NN measures on is among what they learn from.

  An image is its own nearest neighbour: every model would be right.
  """
  for name, section in config.evals.items():
    train_split = getattr(section, 'train_split', None)
    if train_split is None:
      continue
    train, test = (open_data(split, section.source, 0, (0,), '')[0]
                   for split in (train_split, section.split))
    if overlap.overlap(train, test):
      raise ValueError(
          f'evals.{name} measures on {test.split!r} of {test.name}, but has '
          f'examples of it in its train_split, {train.split!r}. Name one that '
          f'has none of them: --config.evals.{name}.train_split.')


def eval_batch_size(config: config_lib.Config) -> int:
  """Returns the images that an evaluator takes at once, if it does not say.

  What training computes at once, whose gradients take far more memory than an
  evaluation: where the whole batch does not fit, this does.
  """
  return config.batch_size // config.parts


def _labelled_objective(
    config: config_lib.Config, dataset: data.Dataset) -> Any:
  """Returns what a model's answers are measured by: without smoothing.

  That is the objective where it is one of labels, else the usual one.
  """
  if config.objective.name == 'supervised':
    return dataclasses.replace(config.objective, label_smoothing=0.0)
  usual = 'sigmoid' if dataset.multi_label else 'auto'
  return objectives.resolve(
      objectives.parse({'loss': usual}), targets=bool(dataset.targets),
      multi_label=dataset.multi_label)


def _eval_batches(
    config: data.DataConfig, dataset: data.Dataset, batch_size: int,
    mesh: jax.sharding.Mesh, unreadable: data.UnreadableLog,
) -> Callable[[], Generator[types.Batch, None, None]]:
  """Returns what yields an evaluator's batches: k-hot, images as numbers."""
  prepare = _prepare(config, dataset)
  on_batch = NamedSharding(mesh, sharding.BATCH)
  parts, num_parts = multihost.batch_parts(mesh)
  # Evaluation has no randomness, and so no key.
  prepared = jax.jit(
      lambda batch: prepare(batch, None, train=False), in_shardings=on_batch,
      out_shardings=on_batch)

  def batches() -> Generator[types.Batch, None, None]:
    local = data.eval_batches(
        config, dataset, batch_size=batch_size, parts=parts,
        num_parts=num_parts, tally=data.Tally(
            max_share=config.max_unreadable, log=unreadable,
            of=dataset.num_examples))
    with contextlib.closing(_sharded(local, mesh)) as whole:
      for batch in whole:
        yield prepared(batch)

  return batches


def _may_miss(config: data.DataConfig, dataset: data.Dataset) -> int:
  """Returns how many examples an evaluation may leave out, as unreadable."""
  if config.eval_unreadable == 'error':
    return 0
  return data.allowed_unreadable(config.max_unreadable, dataset.num_examples)


def _sharded(
    local: Generator[Mapping[str, np.ndarray], None, None],
    mesh: jax.sharding.Mesh,
) -> Generator[types.Batch, None, None]:
  # Closing one must close the other: there may be processes behind it.
  with contextlib.closing(local):
    for batch in local:
      yield multihost.shard_batch(batch, mesh)


def _prepare(
    config: data.DataConfig, dataset: data.Dataset,
) -> Callable[..., dict[str, jax.Array]]:
  return data.prepare(
      config, num_classes=dataset.num_classes, multi_label=dataset.multi_label,
      targets=bool(dataset.targets))


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


def _check_batch(
    what: str, batch_size: int, mesh: jax.sharding.Mesh, parts: int,
) -> None:
  unit = mesh_lib.data_parallelism(mesh) * parts
  if batch_size % unit:
    raise ValueError(
        f'{what} {batch_size} does not divide over '
        f'{mesh_lib.data_parallelism(mesh)} devices'
        + (f' in {parts} parts' if parts > 1 else '')
        + f' (mesh {dict(mesh.shape)}). Use a multiple of {unit}.')


def _to_steps(duration: Any, **sizes: Any) -> int:
  return duration.to_steps(**sizes)


def _with_sharding(shapes: Any, shardings: Any) -> Any:
  return jax.tree.map(
      lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
      shapes, shardings)
