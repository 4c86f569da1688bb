"""Builds the evaluators of a config: their data, batches, loss and model."""

from collections.abc import Callable, Generator
import contextlib
import dataclasses
import functools
from typing import Any

import jax
from jax.sharding import NamedSharding
import numpy as np

from vit_jax import data
from vit_jax import evals
from vit_jax import types
from vit_jax.data import examples
from vit_jax.data.splits import class_sampling as class_sampling_lib
from vit_jax.data.splits import groups
from vit_jax.evals import passes
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import fingerprint
from vit_jax.models import feature_layers
from vit_jax.objectives import supervised
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import sharding

# Opens (split, source, **options), as `evals.Context.open_split`; returns the
# dataset and, with `per_class`, each example's rank within its class.
OpenData = Callable[..., tuple[data.Dataset, np.ndarray | None]]


def opener(
    config: config_lib.Config, train_data: data.Dataset, *,
    data_optional: bool,
) -> OpenData:
  """Returns a function that opens evaluation data, each split once.

  Evaluation data with the classes of `train_data` are numbered as they are.
  `data_optional` is that of `data.open_dataset`.
  """
  @functools.cache
  def open_data(
      split: str, source: str, *, per_class: int = 0,
      seeds: tuple[int, ...] = (0,),
      relabel: Callable[[data.Dataset], data.Dataset] | None = None,
  ) -> tuple[data.Dataset, np.ndarray | None]:
    dataset = data.open_dataset(
        config.data, split=split, source=config.data.own_source(source),
        data_optional=data_optional,
        labelled=config.objective.uses_labels and not relabel and any(
            section.uses_labels for section in config.evals.values()))
    if relabel and not dataset.planned:
      dataset = relabel(dataset)
    dataset = data.with_classes(dataset, train_data.classes)
    dataset = config.objective.with_labels(dataset)
    if dataset.planned or not per_class:
      return dataset, None
    return class_sampling_lib.draw_per_class(
        dataset, per_class, seeds=seeds, allow_fewer=True)

  return open_data


def only_source(config: config_lib.Config) -> str:
  """Returns the source that all evaluators read, if it is one; else ''.

  It is no source of the training, and no evaluator is fitted to images or
  reports the objective, whose weights of classes are those of the training.
  """
  sources = {None if section.fit_split or section.reports_objective else
             config.data.own_source(section.source)
             for section in config.evals.values()}
  return (sources.pop() or '') if len(sources) == 1 else ''


def without_unlabelled(
    config: config_lib.Config, open_data: OpenData,
    note: Callable[[str], object],
) -> config_lib.Config:
  """Returns the config without evaluators whose images lack labels.

  Only if the objective uses no labels; otherwise, opening the data is an error.
  """
  if config.objective.uses_labels:
    return config
  left_out = {
      name: dataset.title for name, section in config.evals.items()
      if section.uses_labels and (dataset := open_data(
          section.split, section.source)[0]).is_unlabelled}
  for name, title in left_out.items():
    note(f'evaluator left out, because {title} has no labels: {name}')
  return dataclasses.replace(config, evals={
      name: section for name, section in config.evals.items()
      if name not in left_out})


def check(experiment: Any) -> None:
  """Raises a `UserError` if evaluators or the best metric do not fit the data.

  Test images of few-shot and k-NN evaluators must not be among their training
  images: an image is its own nearest neighbour, so every model would be
  correct. The same holds for images that thresholds are chosen on. Images of
  another source must not be of groups that are trained on.
  """
  config, dataset = experiment.config, experiment.dataset
  for setting, metric in config_lib.checkpoint_metrics(config):
    check_metric(experiment, metric, setting=setting)
  for name, section in config.evals.items():
    test = experiment.data_of(name)
    if section.uses_head and section.uses_labels and not (
        config.objective.trains_head):
      raise UserError(
          f'evals.{name} measures the head, which is not trained by objective '
          f'{config.objective.name}. Use knn, fewshot or probe.')
    if section.reports_objective and not all(
        test.has_field(*field) for field in dataset.fields.items()):
      raise UserError(
          f'evals.{name} reads {test.title}, without the outputs of teachers '
          'that training reads from its data. Prepare these images, too '
          '(`data prepare --teacher`), with the same teachers and resolution.')
    trained = [dataset, *(
        experiment.open_data(entry.split, entry.source)[0]
        for entry in config.data.mixture
        if config.data.own_source(entry.source) == test.name)]
    if any(one.overlaps(test) for one in trained):
      if section.uses_head:
        experiment.note(f'note: evals.{name} measures on images that are '
                        f'trained on: {test.title}')
    elif not dataset.planned and config.data.own_source(section.source):
      for line in groups.check_undivided(
          {'train': dataset.source, f'evals.{name}': test.source},
          where=f'{dataset.name} and {test.name}',
          divided=config.data.divided_groups):
        experiment.note(f'note: {line}')
    fit = experiment.fit_data_of(name)
    if fit and fit.overlaps(test):
      raise UserError(
          f'evals.{name} measures on {test.split!r} of {test.name}, but its '
          f'{section.fit_field} {fit.split!r} shares examples with it. Use a '
          f'disjoint split: --config.evals.{name}.{section.fit_field}.')


def check_metric(experiment: Any, metric: str, *, setting: str) -> None:
  """Raises if 'evaluator/metric' will not be reported for these data.

  `setting` is the config key that names the metric.
  """
  section = config_lib.evaluator_of(experiment.config, metric, setting=setting)
  name, _, key = metric.partition('/')
  known = (
      *section.metrics_on(experiment.data_of(name) if section.source
                          else experiment.dataset),
      *(experiment.objective.metrics if section.reports_objective else ()))
  if key not in known:
    raise UserError(
        f'{setting} is {metric!r}, which is not measured on this data. '
        f'Measured: {", ".join(f"{name}/{m}" for m in known)}. Use '
        f'{setting}={name}/{known[0]}.')


def build(experiment: Any) -> dict[str, evals.Evaluate]:
  """Returns the evaluators of an experiment by name.

  Raises a `UserError` if the data does not fit an evaluator.
  """
  config, dataset = experiment.config, experiment.dataset
  grid = config.model.grid(config.data.size)
  in_batches = functools.partial(
      sharding.keep_batch_split, mesh=experiment.mesh)

  def predict(
      params: types.Params, batch: types.Batch, *, flip: bool,
      **capture: Any,  # A ResNet has no `capture`.
  ) -> types.Outputs:
    apply = functools.partial(experiment.context.apply, **capture)
    return (passes.average_mirrored(apply) if flip else apply)(
        params, batch['image'])

  def features(
      params: types.Params, batch: types.Batch, layer: str, setting: str, *,
      flip: bool) -> jax.Array:
    name = feature_layers.output(layer, config.model, what=setting)
    options = {'capture': True} if name.startswith('layers/') else {}

    def extract(params: types.Params, images: jax.Array) -> jax.Array:
      found = experiment.context.apply(params, images, **options)
      return feature_layers.extract(
          feature_layers.select(found, name), layer, config.model, grid=grid)

    values = (passes.average_mirrored(extract) if flip else extract)(
        params, batch['image'])
    if values.ndim != 2:
      raise UserError(
          f'{setting} is {layer!r}, which is not a vector. Use cls or mean.')
    return values

  # The evaluation loss uses the labels without smoothing.
  labelled = supervised.SupervisedConfig(
      loss=config.objective.label_loss).resolve(dataset)
  numbered = functools.cache(functools.partial(  # Shares decoded images.
      data.with_classes, classes=dataset.classes, subset=True))
  return {name: section.build(evals.Context(
      where=f'evals.{name}',
      open_split=functools.partial(_open_split, experiment, name, numbered),
      predict=in_batches(functools.partial(predict, flip=section.flip)),
      features=in_batches(functools.partial(features, flip=section.flip)),
      objective=in_batches(experiment.objective),
      objective_uses_labels=config.objective.uses_labels,
      loss=functools.partial(supervised.of_logits, labelled),
      activation='sigmoid' if labelled.loss == 'sigmoid' else 'softmax',
      train_data=dataset, note=experiment.note, grid=grid, model=config.model))
          for name, section in config.evals.items()}


def _open_split(
    experiment: Any, name: str,
    numbered: Callable[[data.Dataset], data.Dataset], split: str,
    source: str = '', *, batch_size: int | None = None,
    head_classes: bool = False, **options: Any,
) -> evals.Split:
  """Opens examples for an evaluator; see `evals.Context.open_split`."""
  config = experiment.config
  batch_size = batch_size or config.eval_batch_size
  mesh_lib.check_batch_size(
      f'evals.{name}.batch_size', batch_size, experiment.mesh, 1)
  # Without those that are off, so that the same data are opened once.
  dataset, ranks = experiment.open_data(
      split, source, **{key: v for key, v in options.items() if v})
  if head_classes:
    dataset = numbered(dataset)
  fingerprint.check_data(dataset)
  section = config.data
  if options.get('per_class'):  # Ranks refer to positions in the split.
    section = dataclasses.replace(section, unreadable='error')
  load = examples.LoadExample(dataset, section, train=False)
  return evals.Split(
      dataset=dataset, ranks=ranks,
      image=load.image, original=load.original, mask=load.original_mask,
      batches=_eval_batches(experiment, section, dataset, batch_size),
      may_miss=section.unreadable == 'skip', **config.data.target_scale)


def _eval_batches(
    experiment: Any, config: data.DataConfig, dataset: data.Dataset,
    batch_size: int,
) -> Callable[[], Generator[types.Batch, None, None]]:
  """Returns a function that opens the prepared batches of a split."""
  mesh, prepare = experiment.mesh, data.prepare(config, dataset)
  on_batch = NamedSharding(mesh, sharding.BATCH)
  shards, num_shards = multihost.batch_shards(mesh)
  # Evaluation has no randomness and needs no key.
  prepared = jax.jit(
      lambda batch: prepare(batch, None, train=False), in_shardings=on_batch,
      out_shardings=on_batch)

  def batches() -> Generator[types.Batch, None, None]:
    local = data.eval_batches(
        config, dataset, batch_size=batch_size, shards=shards,
        num_shards=num_shards,
        unreadable=data.UnreadableCounter(log=experiment.unreadable))
    with contextlib.closing(multihost.shard_batches(local, mesh)) as sharded:
      for batch in sharded:
        yield prepared(batch)

  return batches
