"""Opens the weights that a run starts from; `loop` imports no file formats."""

from collections.abc import Callable
import os

from etils import epath

from vit_jax.experiment import config as config_lib
from vit_jax.experiment import fit_weights
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.weights import weights as weights_lib


def open_weights(
    config: config_lib.Config, workdir: epath.PathLike,
    opener: Callable[..., weights_lib.Weights] = fit_weights.open_address,
) -> weights_lib.Weights | None:
  """Opens the weights that the run in `workdir` starts from, if any.

  The workdir of an earlier stage is in the same folder. `opener` is
  `fit_weights.open_address`, or a function that keeps what it has opened.
  """
  address = config.init.checkpoint
  if config.init.stage:
    address = os.fspath(epath.Path(workdir).parent / config.init.stage)
  if not address:
    return None
  with watchdog_lib.Watchdog(config.log, 'opening the initial weights'):
    return opener(
        address, config.init.which, getattr(config.model, 'num_heads', 0))
