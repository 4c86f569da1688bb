"""Measures image and target statistics of the training split."""

import dataclasses

import numpy as np

from vit_jax.data import config as data_config
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import examples
from vit_jax.data.splits import split_strings

_NUM_IMAGES = 512  # For mean and std of pixels.


def measured(
    config: data_config.DataConfig, dataset: dataset_lib.Dataset,
) -> data_config.DataConfig:
  """Returns the section with numbers for `mean`, `std` and target statistics.

  Reads 512 training images if `mean` is 'measured', and all labels for
  regression. Fills in placeholders for a planned dataset.
  """
  if config.mean == 'measured':
    mean, std = (0.5, 0.5) if dataset.planned else (
        _measure_pixels(config, dataset))
    config = dataclasses.replace(config, mean=mean, std=std)
  scale = config.value_scale
  config = dataclasses.replace(config, mean=scale['mean'], std=scale['std'])
  if not dataset.targets or config.target_mean:
    return config
  count = len(dataset.targets)
  means, stds = ((0.0,) * count, (1.0,) * count) if dataset.planned else (
      _measure_targets(dataset))
  return dataclasses.replace(config, target_mean=means, target_std=stds)


def _measure_targets(
    dataset: dataset_lib.Dataset,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Returns mean and standard deviation of each target over all labels.

  Raises:
    ValueError: for a target that is missing everywhere, or constant.
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
      raise ValueError(
          f'The target {target!r} is missing or equal in all examples of '
          f'{name}. Remove it, or set data.target_mean and data.target_std.')
  return (tuple(map(float, np.nanmean(values, axis=0))),
          tuple(map(float, np.nanstd(values, axis=0))))


def _measure_pixels(
    config: data_config.DataConfig, dataset: dataset_lib.Dataset,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Returns the mean and std of each channel, for images scaled to [0, 1].

  Raises:
    ValueError: if a channel is constant.
  """
  # The operations of evaluation, but the policy for unreadable training images.
  config = dataclasses.replace(config, eval_unreadable='auto')
  load = examples.LoadExample(dataset, config, train=False)
  count = min(_NUM_IMAGES, dataset.num_examples)
  low, high = config.value_range or (0.0, 255.0)
  sums = np.zeros((2, config.channels))
  for i in range(count):
    image = load.image(i * dataset.num_examples // count).astype(np.float64)
    scaled = (image - low) / (high - low)
    sums += [scaled.mean((0, 1)), np.square(scaled).mean((0, 1))]
  mean, square = sums / count
  variance = square - np.square(mean)
  if not np.all(variance > 1e-12):
    channel = int(np.argmin(np.nan_to_num(variance)))
    raise ValueError(
        f'data.std cannot be measured: channel {channel} is {mean[channel]:g} '
        f'in all of {count} images of {dataset.title}. Set '
        'data.mean and data.std, one value per channel.')
  # Four digits are the same on machines whose JPEG decoders round differently.
  return (tuple(float(f'{m:.4g}') for m in mean),
          tuple(float(f'{s:.4g}') for s in np.sqrt(variance)))
