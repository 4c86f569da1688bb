"""Opens the weights that a new run starts from."""

from collections.abc import Callable

from etils import epath

from vit_jax.experiment import config as config_lib
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.weights import open as open_lib
from vit_jax.weights import weights as weights_lib


def open_weights(
    config: config_lib.Config, *, workdir: epath.Path | None = None,
    opener: Callable[..., weights_lib.Weights] = open_lib.open,
) -> weights_lib.Weights | None:
  """Opens the weights that a new run starts from, if it has any.

  Args:
    config: config of the run.
    workdir: folder of the stages, for a run that starts from another stage.
    opener: `weights.open.open`, or one that keeps what it has opened.
  """
  address = config.init.checkpoint
  if config.init.stage and workdir is not None:
    address = str(workdir / config.init.stage)
  if not address:
    return None
  with watchdog_lib.Watchdog(config.log, 'opening the initial weights'):
    return opener(address, which=config.init.which, log=None,
                  num_heads=getattr(config.model, 'num_heads', 0))
