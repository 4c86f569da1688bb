"""Opens the weights that a run starts from; `loop` imports no file formats."""

import os

from etils import epath

from vit_jax.experiment import config as config_lib
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.weights import open as open_lib
from vit_jax.weights import weights as weights_lib


def open_weights(
    config: config_lib.Config, workdir: epath.PathLike,
) -> weights_lib.Weights | None:
  """Opens the weights that the run in `workdir` starts from, if any.

  The workdir of an earlier stage is in the same folder.
  """
  address = config.init.checkpoint
  if config.init.stage:
    address = os.fspath(epath.Path(workdir).parent / config.init.stage)
  if not address:
    return None
  with watchdog_lib.Watchdog(config.log, 'opening the initial weights'):
    return open_lib.open(address, which=config.init.which, log=None,
                         num_heads=getattr(config.model, 'num_heads', 0))
