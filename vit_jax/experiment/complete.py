"""Completes a config with the settings that depend on the data."""

import dataclasses

from vit_jax import data
from vit_jax.experiment import config as config_lib


def of_data(
    config: config_lib.Config, dataset: data.Dataset,
) -> config_lib.Config:
  """Returns the config with the settings that depend on the data.

  Raises a `ValueError` if the config does not fit the data.
  """
  num_classes = config.model.num_classes
  if num_classes and num_classes != dataset.num_classes:
    raise ValueError(
        f'model.num_classes is {num_classes}, but {dataset.name} has '
        f'{dataset.num_classes} '
        + ('targets' if dataset.targets else 'classes')
        + '. Remove it from the config to use these.')
  if config.init.checkpoint and 'auto' in (config.data.mean, config.data.std):
    raise ValueError(
        'data.mean and data.std are auto, those of the weights in '
        f'init.checkpoint ({config.init.checkpoint}), which were not read. '
        'Read the config with load_config.load, or set them.')
  return dataclasses.replace(
      config, data=data.measured(config.data, dataset),
      model=dataclasses.replace(
          config.model, num_classes=dataset.num_classes),
      objective=config.objective.resolve(
          targets=bool(dataset.targets), multi_label=dataset.multi_label))
