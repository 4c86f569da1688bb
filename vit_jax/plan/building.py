"""An experiment whose data may not be here: enough to count and to compile."""

from collections.abc import Sequence
from typing import Literal

import jax

from vit_jax import data
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib


def build(
    config: config_lib.Config, devices: Sequence[jax.Device],
) -> tuple[experiment_lib.Experiment, Literal['data', 'table']]:
  """Wires a config with the data that is there, or else is expected.

  Args:
    config: of one stage.
    devices: of the mesh.

  Returns:
    The experiment, and where the sizes of its data are from: the data, or the
    table of data sets.

  Raises:
    ValueError: if the sections do not fit each other or the devices, or the
      data are neither here nor in the table.
  """
  try:
    return experiment_lib.build(config, devices=devices), 'data'
  except (ValueError, OSError) as missing:
    try:
      return experiment_lib.build(
          config, devices=devices, expected_data=True), 'table'
    except data.UnknownSizes:
      raise missing from None  # The first says what to do.
