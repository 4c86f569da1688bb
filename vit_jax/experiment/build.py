"""Builds an experiment from a config and devices."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import jax

from vit_jax import classes
from vit_jax import console
from vit_jax import data
from vit_jax.data import examples
from vit_jax.exceptions import NotFoundError
from vit_jax.exceptions import UserError
from vit_jax.experiment import complete
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.experiment import fingerprint
from vit_jax.experiment.experiment import Experiment


def build(
    config: config_lib.Config, devices: Sequence[jax.Device] | None = None, *,
    data_optional: bool = False, head: classes.Classes | None = None,
    earlier: Mapping[str, Any] | None = None, elsewhere: str = '',
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
    elsewhere: source that all evaluators read; its images stand in for the
      training data of an evaluation, which are not opened.

  Raises:
    UserError: if sections contradict each other, the data or the devices, or
      processes differ in config, code or data.
  """
  fingerprint.check_config(config)
  dataset = data.open_dataset(
      config.data, split='' if elsewhere else None, source=elsewhere or None,
      data_optional=data_optional,
      labelled=config.objective.uses_labels and not elsewhere)
  dataset = config.objective.with_labels(
      dataclasses.replace(dataset, planned=dataset.planned or bool(elsewhere)))
  _check_masks(config, dataset)
  fingerprint.check_data(dataset)
  note = functools.cache(_print_note)  # Prints a line once.
  if head is not None:
    dataset = _with_head(dataset, head, note)
  open_data = evaluators_lib.opener(
      config, dataset, data_optional=data_optional)
  devices = devices or jax.devices()
  config = complete.complete(
      config, dataset, open_data, devices, earlier=earlier, note=note)
  note(config.data.crop_note())
  experiment = Experiment(
      config=config, devices=tuple(devices), dataset=dataset,
      open_data=open_data, data_optional=data_optional, note=note,
      teachers=config.objective.open_teachers(functools.partial(
          _open_teacher, config, dataset, note)))
  evaluators_lib.check(experiment)
  _ = experiment.evaluators  # Their errors appear at the start.
  return experiment


def _check_masks(config: config_lib.Config, dataset: data.Dataset) -> None:
  """Raises if masks cannot follow their images, or a decoder has no masks."""
  if config.objective.uses_masks:
    examples.LoadExample(dataset, config.data, train=True)
  elif getattr(config.model, 'decoder', None) is not None:
    raise UserError(
        'model.decoder predicts the classes of pixels, but the objective '
        f'{config.objective.name!r} uses no masks. Remove one of them: '
        '--config.model.decoder=none, or --config.objective.name=segmentation.')


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
    note(classes.match(head, dataset.classes)[1])
    return dataset
  names, dataset = tuple(head.names), data.with_classes(
      dataset, head, subset=True)
  return dataclasses.replace(
      dataset, name=head.source, num_classes=head.count, class_names=names,
      targets=names if dataset.targets else ())


def _open_teacher(
    config: config_lib.Config, dataset: data.Dataset,
    note: Callable[[str], object], address: str, which: str,
) -> Any:
  """Returns a teacher of the objective.

  Its classes are those of the dataset, if the objective compares them.
  """
  from vit_jax.weights import adapt
  from vit_jax.weights import open as open_lib
  try:
    model = open_lib.open_model(address, which=which, log=None)
  except FileNotFoundError as error:
    raise NotFoundError(
        'objective.teacher (or teachers), which training and the evaluator '
        f'objective need: {error}') from error
  data.check_pixels(
      config.data, model.preprocess, owner=f'The teacher {address}')
  note(f'teacher: {model.description}')
  if config.objective.shares_classes:
    model, line = adapt.match_classes(
        model, dataset.classes, owner='the teacher')
    note(line)
  return dataclasses.replace(model, config=dataclasses.replace(
      model.config.without_fused_kernels(), dtype=config.model.dtype))
