"""Measures the mean and standard deviation of pixels (`data.mean=measured`)."""

import numpy as np

from vit_jax.data import config as data_config
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import examples
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.exceptions import UserError

_NUM_IMAGES = 512


def measure(
    config: data_config.DataConfig, dataset: dataset_lib.Dataset,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Returns the mean and std of each channel, for images scaled to [0, 1].

  Raises:
    UserError: if a channel is constant.
  """
  load = examples.LoadExample(dataset, config, train=False)
  count = min(_NUM_IMAGES, dataset.num_examples)
  sums = np.zeros((2, config.channels))
  scale = value_scale_lib.ValueScale(value_range=config.value_range)
  for i in range(count):
    scaled = scale.to_unit(
        load.image(i * dataset.num_examples // count)).astype(np.float64)
    sums += [scaled.mean((0, 1)), np.square(scaled).mean((0, 1))]
  mean, square = sums / count
  variance = square - np.square(mean)
  if not np.all(variance > 1e-12):
    channel = int(np.argmin(np.nan_to_num(variance)))
    raise UserError(
        f'data.std cannot be measured: channel {channel} is {mean[channel]:g} '
        f'in all of {count} images of {dataset.title}. Set '
        'data.mean and data.std, one value per channel.')
  # Four digits are the same on machines whose JPEG decoders round differently.
  return (tuple(float(f'{m:.4g}') for m in mean),
          tuple(float(f'{s:.4g}') for s in np.sqrt(variance)))
