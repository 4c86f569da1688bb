"""Parts of an experiment that are derived from its other parts.

    config, devices, dataset, teacher ─▶ model ─▶ objective ─▶ prepare
                                                     └─▶ parameters ─▶ optimizer

They are derived when an experiment is made and, if `dataclasses.replace`
changes what a part depends on, derived again.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import operator
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from vit_jax import data
from vit_jax import objectives
from vit_jax import optim
from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.models import factory
from vit_jax.models import lora_config
from vit_jax.parallel import mesh as mesh_lib

# `experiment.Experiment`, whose module imports this one.
Experiment = Any
# Top-level parameters that the model itself does not have.
NOT_IN_MODEL = (lora_config.ROOT, objectives.TEACHER)


@dataclasses.dataclass(frozen=True)
class Made:
  """A part of an experiment, what it depends on, and whether it was derived.

  The model counts as derived, since its architecture becomes the config's.
  """
  value: Any
  inputs: tuple[Any, ...]
  derived: bool


def complete(experiment: Experiment) -> None:
  """Sets the derived parts of an experiment, and its record `made`.

  A part is derived if it is None. In a copy by `dataclasses.replace`, a part
  is derived again if the original experiment had derived it from other inputs
  than the copy has; `made` records these inputs.

  Raises:
    UserError: if a part that an earlier call replaced depends on one that is
      replaced now, or a part does not fit the others.
  """
  earlier = experiment.made
  _set(experiment, made={}, config=_with_model(experiment, earlier))
  for name, (derive, names) in PARTS.items():
    value, old = getattr(experiment, name), earlier.get(name)
    inputs = tuple(operator.attrgetter(one)(experiment) for one in names)
    kept = old is not None and value is old.value
    derived = value is None or not earlier or name == 'model' or (
        kept and old.derived)
    if value is None or (kept and inputs != old.inputs):
      if not derived:
        changed = [one for one, new, was in zip(names, inputs, old.inputs)
                   if new != was]
        raise UserError(
            f'{name} was replaced before, for another '
            f'{" and ".join(changed)} than the experiment now has. Replace '
            'them in one call: '
            f'dataclasses.replace(experiment, {changed[0].partition(".")[0]}=…,'
            f' {name}=…).')
      _set(experiment, **{name: derive(experiment)})
    experiment.made[name] = Made(getattr(experiment, name), inputs, derived)


def _set(experiment: Experiment, **fields: Any) -> None:
  for name, value in fields.items():
    object.__setattr__(experiment, name, value)  # It is frozen.


def _with_model(
    experiment: Experiment, earlier: dict[str, Made]) -> config_lib.Config:
  """Returns the config with the architecture of a replaced model.

  Checkpoints store it, and evaluators read it.
  """
  config, dataset, model = (
      experiment.config, experiment.dataset, experiment.model)
  if model is not None and earlier and model is not earlier['model'].value:
    config = dataclasses.replace(config, model=getattr(
        model, 'config', config.model))
    if model != _model(config, experiment):
      raise UserError(
          f'model is {type(model).__name__} of another kind or size than the '
          f'objective {config.objective.name} trains on {dataset.name}. Use '
          'experiment.model.clone(config=…), whose config is a changed '
          'experiment.model.config.')
  if config.model.num_classes != dataset.num_classes:
    raise UserError(
        f'dataset has {dataset.num_classes} classes, but the model '
        f'{config.model.num_classes}. Evaluators and checkpoints need the '
        'classes of the config: build another experiment with vit_jax.build.')
  return config


def _model(config: config_lib.Config, experiment: Experiment) -> nn.Module:
  return config.objective.build_model(
      factory.for_devices(config.model, experiment.devices),
      image_shape=config.data.image_shape,
      num_classes=experiment.dataset.num_classes)


def _init_params(experiment: Experiment) -> Callable[[], types.Params]:
  config, model, objective = (
      experiment.config, experiment.model, experiment.objective)
  images = data.abstract_batch(
      config.data, experiment.dataset, config.batch_size)['image']

  def init() -> types.Params:
    # The steps use the other key; see `Experiment.key`.
    key, _ = jax.random.split(jax.random.key(config.seed))
    params = factory.init(model, key, images)
    if config.lora.rank:
      params = registry.load(registry.LORA).init(
          config.lora, jax.random.fold_in(key, 1), params)
    return {**params, **objective.extra_params(
        params, jax.random.fold_in(key, 2), images)}

  return init


def _total_steps(experiment: Experiment) -> int:
  config, count = experiment.config, experiment.dataset.num_examples
  total_steps = config.total.to_steps(
      batch_size=config.batch_size, num_examples=count)
  if total_steps < 1:
    raise UserError(
        f'total is {schema.to_plain(config.total)}, which is no step of '
        f'batch_size {config.batch_size} for {count:,} images. '
        'Use a smaller batch_size or a longer total.')
  return total_steps


def _optimizer(experiment: Experiment) -> optim.Optimizer:
  config, params = experiment.config, nn.unbox(experiment.boxed_params)
  section = config.optimizer
  if objectives.TEACHER in params:
    section = dataclasses.replace(
        section, frozen=(*section.frozen, f'{objectives.TEACHER}/.*'))
  optimizer = optim.build(
      section, params, total_steps=experiment.total_steps,
      to_steps=lambda duration: duration.to_steps(**experiment.sizes))
  if config.averaging and optimizer.average:
    raise UserError(
        f'averaging is {config.averaging}, but the optimizer {section.name} '
        'has its own average. Set averaging to null.')
  if config.lora.rank:
    registry.load(registry.LORA).check_frozen(
        optimizer.trainable, config.init.new)
  return optimizer


def _prepare(
    experiment: Experiment,
) -> Callable[[types.Batch, jax.Array], types.Batch]:
  """Returns the function from a batch of the pipeline to a prepared one."""
  config = experiment.config
  prepare = data.prepare(
      config.data, experiment.dataset,
      distributions=config.objective.label_loss == 'softmax')
  draw = experiment.objective.draw

  def prepare_and_draw(batch: types.Batch, key: jax.Array) -> types.Batch:
    batch = prepare(batch, key, train=True)
    return {**batch, **draw(batch['image'], jax.random.fold_in(key, 2))}

  return prepare_and_draw


def class_counts(
    config: config_lib.Config, dataset: data.Dataset,
) -> np.ndarray:
  """Returns the number of training examples of each class."""
  sampling = config.data.sampling
  if sampling != 'natural' or any(one.weight for one in config.data.mixture):
    raise UserError(
        'objective.class_weights are set, but data.sampling '
        f'({sampling!r}) or weights of data.mixture draw classes more evenly, '
        'too. Leave one of them out.')
  if dataset.planned:  # It has no labels; the step compiles the same.
    return np.ones(dataset.num_classes, int)
  labels = data.class_labels(dataset, setting='objective.class_weights')
  return np.bincount(labels, minlength=dataset.num_classes)


# How each part is derived, and the attributes that this depends on, in the
# order of derivation.
PARTS: Mapping[str, tuple[Callable[[Experiment], Any], Sequence[str]]] = {
    'open_data': (
        lambda x: evaluators_lib.opener(
            x.config, x.dataset, data_optional=x.data_optional),
        ('config.data', 'config.objective', 'dataset')),
    'total_steps': (
        _total_steps, ('config.total', 'config.batch_size', 'dataset')),
    'model': (
        lambda x: _model(x.config, x),
        ('config.model', 'config.data', 'config.objective', 'devices',
         'dataset')),
    'objective': (
        lambda x: x.config.objective.build(x.context),
        ('config.objective', 'config.data', 'config.lora', 'dataset',
         'teachers', 'model')),
    'prepare': (_prepare, ('config.data', 'dataset', 'objective')),
    'init_params': (
        _init_params,
        ('config.seed', 'config.lora', 'config.data', 'dataset', 'model',
         'objective')),
    'boxed_params': (
        lambda x: jax.eval_shape(x.init_params), ('init_params',)),
    'mesh': (
        lambda x: mesh_lib.build(
            x.config.mesh, x.devices,
            num_params=tree.num_elements(x.boxed_params)),
        ('config.mesh', 'devices', 'boxed_params')),
    'optimizer': (
        _optimizer, ('config.optimizer', 'config.averaging', 'total_steps',
                     'boxed_params'))}
