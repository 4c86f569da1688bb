"""What a run counts beside its state; saved with each checkpoint."""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any, Literal

from vit_jax.training import cost


@dataclasses.dataclass
class Counters:
  """The figures that a restart goes on from.

  Attributes:
    origin: the checkpoint that the first parameters came from, or ''.
    images: images trained on; not steps x batch size, which may have changed.
    unreadable: of these, those that took the place of one that could not be
      read.
    flops: operations of training on them.
    secs: time that the run took, over all restarts.
    device_secs_by_kind: the same times the devices it held, by their kind: a
      run may go on on another.
    evaluated: step of the last whole evaluation, or -1.
    evals: what it gave.
    train: the last row of training metrics.
    best: value of the metric that chooses the best checkpoint, or None.
    best_step: its step.
    best_evals: what all evaluators gave of it, measured when training ended.
    unimproved: evaluations of that metric since its best.
    unimproved_steps: steps from its best, or from the start where there is
      none, to the last of them.
  """
  origin: str = ''
  images: int = 0
  unreadable: int = 0
  flops: int = 0
  secs: float = 0.0
  device_secs_by_kind: dict[str, float] = dataclasses.field(
      default_factory=dict)
  evaluated: int = -1
  evals: dict[str, float] = dataclasses.field(default_factory=dict)
  train: dict[str, float] = dataclasses.field(default_factory=dict)
  best: float | None = None
  best_step: int | None = None
  best_evals: dict[str, float] = dataclasses.field(default_factory=dict)
  unimproved: int = 0
  unimproved_steps: int = 0

  @classmethod
  def restore(
      cls, progress: Mapping[str, Any], *, flops_per_image: int,
  ) -> 'Counters':
    """Returns the counters of a checkpoint.

    Args:
      progress: what it holds; one that was written before all was counted has
        fewer keys.
      flops_per_image: operations of training on an image, to count those of a
        checkpoint that only counted the images.
    """
    known = {f.name for f in dataclasses.fields(cls)}
    counters = cls(**{k: v for k, v in progress.items() if k in known})
    if 'flops' not in progress:
      counters.flops = counters.images * flops_per_image
    if 'device_secs_by_kind' not in progress and progress.get('device_secs'):
      counters.device_secs_by_kind = {cost.UNKNOWN: progress['device_secs']}
    return counters

  def judge(
      self, value: float, *, step: int, mode: Literal['max', 'min'],
  ) -> None:
    """Takes in a value of the metric that chooses the best checkpoint.

    Args:
      value: of the metric; one that is not finite is never the best.
      step: at which it was measured.
      mode: whether the best is the largest or the smallest.
    """
    if is_better(value, self.best, mode=mode):
      self.best, self.best_step = value, step
      self.unimproved = self.unimproved_steps = 0
    else:
      self.unimproved += 1
      self.unimproved_steps = step - (self.best_step or 0)

  def is_out_of_patience(
      self, *, evaluations: int | None = None, steps: float | None = None,
  ) -> bool:
    """Returns whether the best is that long ago; None is any length.

    A function of what a checkpoint holds, so that a run which was killed ends
    where an undisturbed one does.
    """
    if not self.unimproved:
      return False
    by_count = evaluations is not None and self.unimproved >= evaluations
    # A hair less: 3 epochs of 1/3 of a step are one step.
    by_steps = steps is not None and self.unimproved_steps >= steps - 1e-9
    return by_count or by_steps

  @property
  def cost(self) -> cost.Cost:
    """What the run has cost up to the checkpoint."""
    return cost.Cost(self.images, self.flops, self.device_secs_by_kind)


def is_better(
    value: float, best: float | None, *, mode: Literal['max', 'min'],
) -> bool:
  """Returns whether a value beats the best so far; None is beaten by any."""
  if not math.isfinite(value) or best is None:
    return math.isfinite(value)
  return value < best if mode == 'min' else value > best
