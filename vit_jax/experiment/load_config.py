"""Configs of runs that start from a checkpoint.

Separate from `config`, because this opens the checkpoint or other weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax import console
from vit_jax import escape
from vit_jax import schema
from vit_jax.experiment import config as config_lib
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import open as open_lib
from vit_jax.weights import weights as weights_lib


def load(
    specification: str, overrides: Sequence[str] = (),
) -> dict[str, config_lib.Config]:
  """Like `config.load`, but takes missing model fields from `init.checkpoint`.

  Raises a `FileNotFoundError` if there is no checkpoint.
  """
  return load_with_weights(specification, overrides)[0]


def load_with_weights(
    specification: str, overrides: Sequence[str] = (),
) -> tuple[dict[str, config_lib.Config], dict[str, weights_lib.Weights]]:
  """Returns configs as `load`, and the weights that `init.checkpoint` names.

  The weights of other codebases are described once, when they are opened.
  """
  opened: dict[tuple[str, str], weights_lib.Weights] = {}

  def read_weights(
      init: adapt_lib.InitConfig, model: Mapping[str, Any],
  ) -> Mapping[str, Any]:
    key = init.checkpoint, init.which
    if key not in opened:
      opened[key] = open_lib.open(
          init.checkpoint, which=init.which,
          num_heads=int(model.get('num_heads') or 0))
      for line in () if opened[key].is_checkpoint else opened[key].summary:
        console.print_lines(escape.line(line))
    return _sections(opened[key])

  configs = config_lib.load(
      specification, overrides, read_weights=read_weights)
  return configs, {
      name: opened[config.init.checkpoint, config.init.which]
      for name, config in configs.items() if config.init.checkpoint}


def _sections(weights: weights_lib.Weights) -> Mapping[str, Any]:
  """Returns sections of the config of a run that has trained the weights."""
  return weights.run or {
      'model': schema.to_plain(weights.config), 'data': {
          'mean': list(weights.preprocess.mean),
          'std': list(weights.preprocess.std)}}


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
