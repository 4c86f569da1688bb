"""Builds an experiment for counting and compiling, even without its data."""

from collections.abc import Sequence
from typing import Literal

import jax

from vit_jax import data
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib


def build(
    config: config_lib.Config, devices: Sequence[jax.Device],
) -> tuple[experiment_lib.Experiment, Literal['data', 'table']]:
  """Builds an experiment from its data or from the table of known datasets.

  Returns:
    The experiment, and whether the sizes of the dataset come from the data or
    from the table.

  Raises:
    ValueError: if the config is invalid, or the data are neither available
      nor in the table.
  """
  try:
    return experiment_lib.build(config, devices=devices), 'data'
  except (ValueError, OSError) as error:
    try:
      return experiment_lib.build(
          config, devices=devices, expected_data=True), 'table'
    except data.UnknownSizes:
      raise error from None  # The first error says what to do.
