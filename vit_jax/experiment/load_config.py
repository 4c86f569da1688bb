"""Configs of runs that start from a checkpoint.

Separate from `config`, because this reads the checkpoint's config and, for
weights of other codebases, the weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax import schema
from vit_jax.experiment import config as config_lib
from vit_jax.inference import load as load_lib
from vit_jax.weights import initialize


def load(
    specification: str, overrides: Sequence[str] = (),
) -> dict[str, config_lib.Config]:
  """Like `config.load`, but takes missing model fields from `init.checkpoint`.

  Raises a `FileNotFoundError` if there is no checkpoint.
  """
  return config_lib.load(specification, overrides, read_source=_read_source)


def load_one(
    specification: str, overrides: Sequence[str] = (), *, stage: str = '',
) -> config_lib.Config:
  """Loads the config of a stage, or the only config of a file.

  Raises:
    ValueError: if the file has several stages or lacks the stage.
  """
  stages = load(specification, overrides)
  if stage:
    schema.check_name(stage, list(stages), what='stage (--stage)')
    return stages[stage]
  if len(stages) > 1:
    raise ValueError(
        f'{specification} has the stages {", ".join(stages)}, but one config '
        'is needed. Use --stage (evaluate) or a file with one config.')
  return next(iter(stages.values()))


def _read_source(
    init: initialize.InitConfig, model: Mapping[str, Any]) -> Mapping[str, Any]:
  return load_lib.find(init.checkpoint, which=init.which, num_heads=int(
      model.get('num_heads') or 0)).config
