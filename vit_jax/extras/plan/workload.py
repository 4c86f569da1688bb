"""Config of the benchmarked training step: softmax loss, Adam, no dropout."""

from collections.abc import Sequence
import dataclasses

from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.experiment import config as config_lib

TRAIN_OPS = [{'op': 'inception_crop'}, {'op': 'flip'}]


def config(
    variant: str, *, batch_size: int, source: str, resolution: int = 224,
    dtype: str = 'float32', num_workers: int = 0,
    overrides: Sequence[str] = (),
) -> config_lib.Config:
  """Returns the config; a known `source` need not be available.

  Raises:
    UserError: if the config is invalid.
  """
  return config_lib.resolve_with({
      'total': {'steps': 10_000},
      'batch_size': batch_size,
      'model': {'variant': variant, 'dtype': dtype},
      'data': {'source': source, 'resolution': resolution,
               'train_ops': TRAIN_OPS, 'num_workers': num_workers},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-4,
                    'schedule': {'name': 'constant'}},
  }, overrides)


def without_evals(config: config_lib.Config) -> config_lib.Config:
  """Returns the config of a run without evaluators or a best checkpoint."""
  return dataclasses.replace(
      config, evals={}, checkpoint=checkpoint_config.CheckpointConfig())
