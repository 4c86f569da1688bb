"""Builds an experiment from a config and devices."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from vit_jax import classes
from vit_jax import console
from vit_jax import data
from vit_jax import models
from vit_jax import objectives
from vit_jax import optim
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.data import examples
from vit_jax.data import scaling
from vit_jax.experiment import complete
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.experiment import fingerprint
from vit_jax.experiment.experiment import Experiment
from vit_jax.models import lora
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.training import step as step_lib
from vit_jax.weights import open as open_lib


def build(
    config: config_lib.Config, devices: Sequence[jax.Device] | None = None, *,
    data_optional: bool = False, head: classes.Classes | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> Experiment:
  """Builds an experiment.

  Args:
    config: the typed config.
    devices: devices of the mesh; all by default.
    data_optional: whether sizes from the table of known datasets may replace
      data that are not available, so that the step can still be compiled.
    head: classes of a head to evaluate; by default the classes of the data.
    earlier: config of the run that is resumed or evaluated, whose dtype
      replaces 'auto'.

  Raises:
    ValueError: if sections contradict each other, the data or the devices, or
      processes differ in config, code or data.
  """
  fingerprint.check_config(config)
  dataset = data.open_dataset(
      config.data, data_optional=data_optional,
      labelled=config.objective.uses_labels)
  dataset = config.objective.with_labels(dataset)
  _check_masks(config, dataset)
  fingerprint.check_data(dataset)
  note = functools.cache(_print_note)  # Prints a line once.
  if head is not None:
    dataset = _with_head(dataset, head, note)
  open_data = evaluators_lib.opener(
      config, dataset, data_optional=data_optional)
  config = evaluators_lib.without_unlabelled(config, open_data, note)
  devices = devices or jax.devices()
  if earlier and config.model.dtype == 'auto':
    config = dataclasses.replace(config, model=dataclasses.replace(
        config.model, dtype=earlier['model']['dtype']))
  config = complete.complete(config, dataset, open_data, devices)
  note(config.data.crop_note())
  note(config.data.mixing_note(config.batch_size))
  teacher = _teacher(config, dataset, note)
  model_config = models.for_devices(config.model, devices)
  model = config.objective.build_model(
      model_config, image_shape=config.data.image_shape,
      num_classes=dataset.num_classes)
  objective_of = _objectives(config, dataset, teacher)
  objective = objective_of(model)
  loss = _with_patch_sizes(config, objective, lambda patch: objective_of(
      models.build(model_config, num_classes=dataset.num_classes,
                   patch=patch)))
  evaluators_lib.check(
      config, dataset, open_data, objective_metrics=objective.metrics,
      note=note)
  init_params = functools.partial(
      _init_params, config, model, objective,
      data.abstract_batch(config.data, dataset, config.batch_size)['image'])
  boxed = jax.eval_shape(init_params)
  mesh = mesh_lib.build(
      config.mesh, devices, num_params=tree.num_elements(boxed))
  mesh_lib.check_batch_size(
      'batch_size', config.batch_size, mesh, config.num_microbatches)
  total_steps, optimizer = _optimizer(config, dataset, nn.unbox(boxed))
  lora.check_frozen(optimizer.trainable)
  unreadable = data.UnreadableLog()
  experiment = Experiment(
      config=config, mesh=mesh, dataset=dataset, model=model,
      objective=objective, loss=loss, optimizer=optimizer,
      prepare=_prepare(config, dataset, objective), init_params=init_params,
      boxed_params=boxed, total_steps=total_steps, teacher=teacher,
      build_evaluators=functools.cache(functools.partial(
          evaluators_lib.build, config, model=model, objective=objective,
          train_data=dataset, mesh=mesh, unreadable=unreadable,
          open_data=open_data, note=note)),
      open_data=open_data, unreadable=unreadable)
  _ = experiment.evaluators  # Their errors appear at the start.
  return experiment


def _check_masks(config: config_lib.Config, dataset: data.Dataset) -> None:
  """Raises if masks cannot follow their images, or a decoder has no masks."""
  if config.objective.uses_masks:
    examples.LoadExample(dataset, config.data, train=True)
  elif getattr(config.model, 'decoder', None) is not None:
    raise ValueError(
        'model.decoder predicts the classes of pixels, but the objective '
        f'{config.objective.name!r} uses no masks. Remove one of them: '
        '--config.model.decoder=none, or --config.objective.name=segmentation.')


def _init_params(
    config: config_lib.Config, model: nn.Module,
    objective: objectives.Objective, images: jax.ShapeDtypeStruct,
) -> types.Params:
  # The steps use the other key; see `Experiment.key`.
  key, _ = jax.random.split(jax.random.key(config.seed))
  params = models.init(model, key, images)
  params = lora.init(config.lora, jax.random.fold_in(key, 1), params)
  return {**params, **objective.extra_params(
      params, jax.random.fold_in(key, 2), images)}


def _objectives(
    config: config_lib.Config, dataset: data.Dataset, teacher: Any,
) -> Callable[[nn.Module], objectives.Objective]:
  """Returns the function from a model to the objective of the config."""
  context = objectives.Context(
      model=None, dataset=dataset, mean=config.data.value_scale['mean'],
      std=config.data.value_scale['std'], teacher=teacher,
      class_counts=functools.cache(
          functools.partial(_class_counts, config, dataset)))
  return lambda model: config.objective.build(dataclasses.replace(
      context, model=(
          lora.Adapted(model, config.lora) if config.lora.rank else model)))


def _with_patch_sizes(
    config: config_lib.Config, loss: step_lib.Loss,
    loss_of: Callable[[int], step_lib.Loss],
) -> step_lib.Loss:
  """Returns the loss whose steps draw one of `model.patch_sizes`, if any.

  Raises a `ValueError` if images do not divide into these patches.
  """
  sizes = getattr(config.model, 'patch_sizes', ())
  if not sizes:
    return loss
  if not config.objective.uses_labels:
    raise ValueError(
        f'model.patch_sizes is {sizes}, but the patches of the objective '
        f'{config.objective.name!r} have one size. Leave it out.')
  for patch in sizes:
    try:
      dataclasses.replace(config.model, patch=patch).grid(
          config.data.image_shape[:2])
    except ValueError as error:
      raise ValueError(f'model.patch_sizes: {error}') from error
  return step_lib.DrawnLoss(loss, tuple(loss_of(patch) for patch in sizes))


def _print_note(line: str) -> None:
  if line and jax.process_index() == 0:
    console.print_lines(line, in_logs=True)


def _with_head(
    dataset: data.Dataset, head: classes.Classes,
    note: Callable[[str], object],
) -> data.Dataset:
  """Returns the dataset with the classes of a head.

  Evaluators compare them with the classes of their data.
  """
  if not head.names:
    note(classes.match(
        head, dataset.classes, remedy='The evaluators fewshot and knn work '
        'with any classes.'))
    return dataset
  names = tuple(head.names)
  return dataclasses.replace(
      dataset, name=head.source, num_classes=head.count, class_names=names,
      targets=names if dataset.targets else ())


def _teacher(
    config: config_lib.Config, dataset: data.Dataset,
    note: Callable[[str], object],
) -> Any:
  """Returns the teacher of the objective, or None."""
  if config.objective.teacher_address is None:
    return None
  address, which = config.objective.teacher_address
  try:
    model = open_lib.open_model(address, which=which, log=None)
  except FileNotFoundError as error:
    raise FileNotFoundError(
        'objective.teacher, which training and the evaluator objective need: '
        f'{error}') from error
  channels = model.preprocess.channels
  if channels != config.data.channels:
    raise ValueError(
        f'objective.teacher {address} is for images of {channels} '
        f'channels, but {dataset.name} has {config.data.channels}. Use a '
        'teacher that was trained on it.')
  theirs, ours = (tuple(each.value_range or scaling.DEFAULT_RANGE)
                  for each in (model.preprocess, config.data))
  if theirs != ours:
    raise ValueError(
        f'objective.teacher {address} is for pixels in {theirs}, but '
        f'data.value_range is {ours}. Use a teacher for the same range.')
  note(f'teacher: {model.description}')
  note(classes.match(
      classes.Classes('the teacher', model.config.num_classes,
                      model.preprocess.labels, address),
      dataset.classes, rename=classes.CONVERT, remedy='Use a teacher that was '
      'trained on these classes in this order.'))
  return dataclasses.replace(model, config=dataclasses.replace(
      model.config.without_fused_kernels(), dtype=config.model.dtype))


def _optimizer(
    config: config_lib.Config, dataset: data.Dataset, params: types.Params,
) -> tuple[int, optim.Optimizer]:
  """Returns the length of training in steps, and the optimizer."""
  sizes = {'batch_size': config.batch_size,
           'num_examples': dataset.num_examples}
  total_steps = config.total.to_steps(**sizes)
  if total_steps < 1:
    raise ValueError(
        f'total is {schema.to_plain(config.total)}, which is no step of '
        f'batch_size {config.batch_size} for {dataset.num_examples:,} images. '
        'Use a smaller batch_size or a longer total.')
  section = config.optimizer
  if objectives.TEACHER in params:
    section = dataclasses.replace(
        section, frozen=(*section.frozen, f'{objectives.TEACHER}/.*'))
  optimizer = optim.build(
      section, params, total_steps=total_steps,
      to_steps=lambda duration: duration.to_steps(
          total_steps=total_steps, **sizes))
  if config.averaging and optimizer.average:
    raise ValueError(
        f'averaging is {config.averaging}, but the optimizer {section.name} '
        'has its own average. Set averaging to null.')
  return total_steps, optimizer


def _prepare(
    config: config_lib.Config, dataset: data.Dataset,
    objective: objectives.Objective,
) -> Callable[[types.Batch, jax.Array], types.Batch]:
  """Returns the function from a batch of the pipeline to model inputs."""
  prepare = data.prepare(
      config.data, dataset,
      distributions=config.objective.label_loss == 'softmax')

  def prepare_and_draw(batch: types.Batch, key: jax.Array) -> types.Batch:
    batch = prepare(batch, key, train=True)
    return {**batch, **objective.draw(
        batch['image'], jax.random.fold_in(key, 2))}

  return prepare_and_draw


def _class_counts(
    config: config_lib.Config, dataset: data.Dataset,
) -> np.ndarray:
  """Returns the number of training examples of each class."""
  if config.data.sampling != 'natural':
    raise ValueError(
        'objective.class_weights are set and data.sampling is '
        f'{config.data.sampling!r}: both compensate for rare classes. Leave '
        'one out.')
  if any(entry.weight for entry in config.data.mixture):
    raise ValueError(
        'objective.class_weights are set, but they count images, and '
        'data.mixture has weights of its own. Leave one out.')
  if dataset.planned:  # It has no labels; the step compiles the same.
    return np.ones(dataset.num_classes, int)
  labels = data.class_labels(dataset, setting='objective.class_weights')
  return np.bincount(labels, minlength=dataset.num_classes)
