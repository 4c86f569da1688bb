"""Section `log`: what a run logs, and when it is taken to hang."""

import dataclasses
from typing import Literal

from vit_jax import fields
from vit_jax import schema


@dataclasses.dataclass(frozen=True)
class LogConfig:
  """Section `log`.

  Attributes:
    every: interval at which training metrics are averaged and written; 'auto'
      is 50 steps, or a tenth of a shorter run.
    stalled_secs: if no step ends for this long, each process reports its stack;
      0 for never.
    hung_secs: if no step ends for this long, the run exits with status 76, to
      be restarted; 0 for never.
    start_secs: the same limit for each phase of the start: opening the data,
      restoring a checkpoint, compiling the step.
    wandb: whether to also write metrics to Weights & Biases (`pip install
      wandb`), under an id that depends on the workdir.
  """
  every: schema.Duration | Literal['auto'] = 'auto'
  stalled_secs: float = 300.0
  hung_secs: float = 1800.0
  start_secs: float = 7200.0
  wandb: bool = False

  def __post_init__(self):
    fields.check_range(self, 'stalled_secs', 'hung_secs', 'start_secs')
