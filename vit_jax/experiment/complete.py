"""Completes a config with the settings that depend on the data and devices.

The completed config is the one that runs, is printed and is saved. Two settings
follow later: the number of microbatches, from the compiler (`fit_batch`), and
the preset of the mesh, from the number of parameters (`parallel.mesh`).
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import jax

from vit_jax import data
from vit_jax import schema
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.models import factory

_MAX_EVALUATIONS = 10  # By default.
_MANY = 50_000  # Of so many training images, k-NN uses a tenth by default.


def complete(
    config: config_lib.Config, dataset: data.Dataset,
    open_data: evaluators_lib.OpenData, devices: Sequence[jax.Device], *,
    earlier: Mapping[str, Any] | None = None,
    note: Callable[[str], object] = print,
) -> config_lib.Config:
  """Returns the config with the settings that depend on data and devices.

  These are the number of classes, the scales of pixels and targets, the loss of
  the labels, the kinds and splits of evaluators, the metric of the best
  checkpoint, the intervals 'auto' and the dtype 'auto'.

  Args:
    config: the config of the user, with the settings of initial weights.
    dataset: the training data.
    open_data: opens the data of evaluators.
    devices: devices of the mesh.
    earlier: see `build.build`.
    note: prints a line.

  Raises:
    UserError: if the config does not fit the data.
  """
  num_classes = config.model.num_classes
  if num_classes and num_classes != dataset.num_classes:
    raise UserError(
        f'model.num_classes is {num_classes}, but {dataset.name} has '
        f'{dataset.num_classes} classes or targets. Remove it from the config.')
  config = evaluators_lib.without_unlabelled(config, open_data, note)
  config = dataclasses.replace(
      config, data=data.measured(config.data, dataset),
      model=dataclasses.replace(
          factory.with_dtype(
              config.model, devices, earlier=(earlier or {}).get('model')),
          num_classes=dataset.num_classes),
      objective=config.objective.resolve(dataset),
      evals={name: _with_splits(section.resolve(dataset), open_data)
             for name, section in config.evals.items()})
  return _with_intervals(_with_best(config, dataset, note), dataset, open_data)


def _with_splits(section: Any, open_data: evaluators_lib.OpenData) -> Any:
  """Returns the section of an evaluator with its splits.

  Images of another source are divided for evaluators with training images, but
  whole for others.
  """
  split, fit_split = section.split, section.fit_split
  if fit_split is None:
    return section
  if fit_split == 'auto':
    count = open_data('train', section.source)[0].num_examples
    fit_split = 'train' if count < _MANY else 'train[:10%]'
  if section.source and not split:
    split = open_data(fit_split, section.source)[0].eval_split
  return dataclasses.replace(
      section, split=split, **{section.fit_field: fit_split})


def _with_best(
    config: config_lib.Config, dataset: data.Dataset,
    note: Callable[[str], object],
) -> config_lib.Config:
  """Returns the config with a metric for the `checkpoint.best` 'auto'.

  The metric comes from a validation split that is neither trained on nor the
  split of published results. If no evaluator uses such a split, one of the
  published split is copied to it, also for a metric that `checkpoint` names.
  Without such a split, no best checkpoint is kept.

  Raises:
    UserError: if `checkpoint.patience` has no metric, or there is no evaluator
      of a metric.
  """
  section, sections, best = (
      config.checkpoint, dict(config.evals), config.checkpoint.best)
  reserved = {*split_strings.names(dataset.split), dataset.eval_split}
  usable = [split for split in dataset.splits
            if split in split_strings.VALIDATION and split not in reserved]
  # Few-shot and k-NN accuracy have training images of their own.
  periodic = [name for name, one in sections.items()
              if one.every and not one.source and one.fit_split is None]
  copied = next((sections[name] for name in periodic
                 if sections[name].split in ('', dataset.eval_split)), None)
  added = [metric.partition('/')[0]
           for _, metric in config_lib.checkpoint_metrics(config)]
  name = ''
  if best == 'auto':
    name = next((n for n in periodic if sections[n].split in usable), '')
    if not name and copied and usable:
      name = next((n for n in usable if n not in sections), '')
      if not name:
        note(f'note: no best checkpoint is kept, because evals.{usable[0]} '
             f'does not measure on the split {usable[0]} during training. Set '
             'its split and every, or name it differently.')
    if not name and section.patience is not None:
      raise UserError(
          'checkpoint.patience needs a metric to watch, but no evaluator with '
          f'an interval has a validation split of {dataset.name} that is '
          'separate from training and test data. Name a metric: '
          '--config.checkpoint.best=EVALUATOR/METRIC.')
    added.append(name)
  for split in {*added}.intersection(usable).difference(sections):
    if copied:
      sections[split] = dataclasses.replace(copied, split=split)
  if best == 'auto':
    best = name and f'{name}/' + sections[name].metrics_on(dataset)[0]
  config = dataclasses.replace(
      config, checkpoint=dataclasses.replace(section, best=best),
      evals=sections)
  config_lib.check_best(config)
  return config


def _with_intervals(
    config: config_lib.Config, dataset: data.Dataset,
    open_data: evaluators_lib.OpenData,
) -> config_lib.Config:
  """Returns the config with durations for the intervals 'auto'.

  By default, evaluations read no more images than training does, but run at
  least once. An image costs as much to decode as in training, and no more to
  compute.
  """
  total = config.total.to_steps(
      batch_size=config.batch_size, num_examples=dataset.num_examples)
  sections = {name: section for name, section in config.evals.items()
              if section.every == 'auto'}
  images = sum(
      (1 + section.flip) * open_data(split, section.source)[0].num_examples
      for section in sections.values()
      for split in {section.split, section.fit_split} - {None})
  # The best checkpoint is evaluated again at the end.
  count = config.batch_size * total // max(1, images) - bool(
      config.checkpoint.best)
  every = schema.Duration(percent=100 / max(1, min(_MAX_EVALUATIONS, count)))
  log = config.log if config.log.every != 'auto' else dataclasses.replace(
      config.log, every=schema.Duration(steps=max(1, min(50, total / 10))))
  return dataclasses.replace(config, log=log, evals={
      **config.evals, **{name: dataclasses.replace(section, every=every)
                         for name, section in sections.items()}})
