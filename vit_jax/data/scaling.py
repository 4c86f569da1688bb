"""Scales of pixels and regression targets: measured, inherited, compared."""

from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from vit_jax import registry
from vit_jax.data import config as data_config
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import examples
from vit_jax.data import preprocessing
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError


def measured(
    config: data_config.DataConfig, dataset: dataset_lib.Dataset,
) -> data_config.DataConfig:
  """Returns the section with numbers for `mean`, `std` and target statistics.

  A `resolution` 'auto' becomes its default, too.

  Reads 512 training images if `mean` is 'measured', and all labels for
  regression. Fills in placeholders for a planned dataset.
  """
  if config.mean == 'measured':
    mean, std = (0.5, 0.5) if dataset.planned else registry.load(
        registry.MEASURE)(config, dataset)
    config = dataclasses.replace(config, mean=mean, std=std)
  config = dataclasses.replace(config, **vars(config.value_scale), resolution=(
      config.size if config.resolution == 'auto' else config.resolution))
  count, given = len(dataset.targets), len(config.target_mean)
  if count and given not in (0, count):
    raise UserError(
        f'data.target_mean has {given} numbers, but there are {count} targets: '
        f'{", ".join(dataset.targets)}. Remove target_mean and target_std to '
        'measure them.')
  if given or not count:
    return config
  means, stds = ((0.0,) * count, (1.0,) * count) if dataset.planned else (
      _measure_targets(dataset))
  return dataclasses.replace(config, target_mean=means, target_std=stds)


def _measure_targets(
    dataset: dataset_lib.Dataset,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Returns mean and standard deviation of each target over all labels.

  Raises:
    UserError: for a target that is missing everywhere, or constant.
  """
  name, source = dataset.title, dataset.source
  values = np.empty((len(source), len(dataset.targets)))
  labels = split_strings.labels(source)
  for index in range(len(source)):
    with dataset.naming(index):
      values[index] = examples.to_vector(next(labels), dataset.targets)
  for target, column in zip(dataset.targets, values.T):
    if not np.nanmax(column, initial=-np.inf) > np.nanmin(
        column, initial=np.inf):
      raise UserError(
          f'The target {target!r} is missing or equal in all examples of '
          f'{name}. Remove it, or set data.target_mean and data.target_std.')
  return (tuple(map(float, np.nanmean(values, axis=0))),
          tuple(map(float, np.nanstd(values, axis=0))))


def inherit(
    section: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
  """Replaces 'auto' in `mean`, `std` and `resolution` by those of weights.

  Args:
    section: section `data` of a run.
    trained: section `data` that the weights were trained with, as far as known.

  Raises:
    UserError: if theirs are not known yet, or are for other channels.
  """
  config, result = data_config.parse(section), dict(section)
  if config.resolution == 'auto':
    result['resolution'] = trained.get('resolution', 'auto')
  for name in ('mean', 'std'):
    value = trained.get(name, 'auto')
    if getattr(config, name) != 'auto' or value == 'auto':
      continue
    if isinstance(value, (list, tuple)) and len({*value}) == 1:
      value = value[0]
    elif value == 'measured' or np.size(value) not in (1, config.channels):
      raise UserError(
          f'data.{name} is auto, that of the initial weights, but theirs is '
          f'{value}, and the images have {config.channels} channels. Set '
          'data.mean and data.std to numbers or measured.')
    result[name] = value
  return result


def check_pixels(
    config: data_config.DataConfig, trained: preprocessing.Preprocess, *,
    owner: str,
) -> None:
  """Raises a UserError if weights are for other channels or another range.

  Args:
    config: the images.
    trained: preprocessing of the weights.
    owner: the weights, for the message.
  """
  ours, theirs = (
      f'{one.channels} channels in the range '
      f'{tuple(one.value_range or value_scale_lib.DEFAULT_RANGE)}'
      for one in (config, trained))
  if ours != theirs:
    raise UserError(
        f'{owner} is for pixels of {theirs}, but the images have {ours}. Use '
        'another one, or --config.data.channels and value_range.')


def scale_notes(
    config: data_config.DataConfig, trained: value_scale_lib.ValueScale,
) -> list[str]:
  """Returns a note for each part of the scale that differs from the weights'.

  Args:
    config: images of the new run.
    trained: scale of the weights.
  """
  notes = []
  for name in ('value_range', 'mean', 'std'):
    both = getattr(config, name), getattr(trained, name)
    ours, theirs = (value_scale_lib.DEFAULT_RANGE if value is None else value
                    for value in both)
    sizes = {np.size(ours), np.size(theirs)} - {1}
    if isinstance(ours, str) or len(sizes) > 1:
      continue  # Not measured yet, or of other channels.
    if not np.allclose(ours, theirs):
      notes.append(f'note: data.{name} is {ours}, but the weights are for '
                   f'{tuple(np.atleast_1d(theirs).tolist())}')
  return notes
