"""Finds the checkpoint or weights that a new run starts from."""

from collections.abc import Callable

from etils import epath

from vit_jax.checkpoints import source as source_lib
from vit_jax.experiment import config as config_lib
from vit_jax.inference import load
from vit_jax.run import watchdog as watchdog_lib


def find(
    config: config_lib.Config, *, workdir: epath.Path | None = None,
    find_source: Callable[..., source_lib.Source] = load.find,
) -> source_lib.Source | None:
  """Finds the initial parameters of a run, if it has any.

  Args:
    config: config of the run.
    workdir: folder of the stages, for a run that starts from another stage.
    find_source: finds a source by its path.
  """
  origin = config.init.checkpoint
  if config.init.stage and workdir is not None:
    origin = str(workdir / config.init.stage)
  if not origin:
    return None
  with watchdog_lib.Watchdog(config.log, 'finding the initial weights'):
    return find_source(origin, which=config.init.which,
                       num_heads=getattr(config.model, 'num_heads', 0),
                       log=None)  # The loaded config has described them.
