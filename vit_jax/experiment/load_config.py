"""Configs of runs that start from a checkpoint.

Separate from `config`, because this reads the checkpoint's config and, for
weights of other codebases, the weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax.experiment import config as config_lib
from vit_jax.inference import load as load_lib
from vit_jax.weights import initialize


def load(
    specification: str, overrides: Sequence[str] = (),
) -> dict[str, config_lib.Config]:
  """Parses a config file; takes open fields of `model` from `init.checkpoint`.

  Takes, returns and raises what `config.load` does.

  Raises:
    FileNotFoundError: if there is no checkpoint.
  """
  return config_lib.load(specification, overrides, read_source=_read_source)


def _read_source(
    init: initialize.InitConfig, model: Mapping[str, Any]) -> Mapping[str, Any]:
  # Weights of other codebases do not always determine the number of heads.
  heads = {name: int(value) for name, value in model.items()
           if name == 'num_heads' and value}
  return load_lib.find(init.checkpoint, which=init.which, **heads).config
