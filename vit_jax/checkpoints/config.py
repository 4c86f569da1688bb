"""Section `checkpoint` of a config."""

import dataclasses

from vit_jax import fields
from vit_jax import schema
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
  """Intervals and number of checkpoints, and early stopping.

  Attributes:
    every: interval between checkpoints; the last step is always saved.
    keep: number of latest checkpoints to keep.
    best: metric of the best checkpoint, such as 'val/accuracy'; '' for none.
      'auto' uses a validation split, if the data has one besides the test split
      and the training images.
    patience: stops the run when `best` has not improved for this long: a
      duration such as {'epochs': 5} or a number of evaluations; None disables
      early stopping.
    stop_below: (metric, fraction) pairs; stops the run when a metric falls
      below this fraction of its first value. With the rank of the features,
      (('knn/feature_rank', 0.5),), this detects their collapse.
  """
  every: schema.Duration = schema.Duration(percent=10)
  keep: int = 1
  best: str = 'auto'
  patience: schema.Duration | int | None = None
  stop_below: tuple[tuple[str, float], ...] = ()

  def __post_init__(self):
    fields.check_range(self, 'keep', low=1)
    if self.patience is not None and not self.best:
      raise UserError(
          'patience needs a metric to watch, but best is not set. Set one, for '
          "example best='val/accuracy'.")
    if isinstance(self.patience, int) and self.patience < 1:
      raise UserError(
          'patience must be at least 1 evaluation, but is '
          f'{self.patience}. Use none to train to the end.')
