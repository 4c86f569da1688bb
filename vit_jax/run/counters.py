"""Counters of a run, saved with each checkpoint, and its cost.

    exaFLOPs = FLOPs per image x images / 1e18
    core-hours = seconds x devices x cores per device / 3600

A device of TPU v4 and v5p has two cores. Every other one counts as one, also a
CPU, however many cores of it the run uses.

The cost excludes rematerialisation, the start of the run, and steps repeated
after a kill; of the killed start, only the time before its last checkpoint
counts.
"""

from collections.abc import Collection, Mapping
import dataclasses
import math
from typing import Any, Literal

import jax

from vit_jax import registry
from vit_jax import schema
from vit_jax.parallel import mesh as mesh_lib


def hardware(device_kind: str) -> Any:
  """Returns cores and peak figures of a kind of device; None if unknown."""
  find = registry.optional(registry.HARDWARE)
  return find(device_kind) if find else None


@dataclasses.dataclass
class Counters:
  """Counters that continue across restarts.

  Attributes:
    step: number of updates made.
    origin: checkpoint of the initial parameters, or ''.
    base: hash of these parameters, if a checkpoint holds only adapters of them.
    positions: interpolation of position embeddings of these parameters, or ''.
    teachers: identity of the teachers; see `frozen_weights.hash_teachers`.
    images: images trained on; the batch size may have changed in between.
    unreadable: images that replaced an unreadable one.
    flops: operations of training on `images`.
    secs: training time in seconds.
    device_secs_by_kind: training time x number of devices, by device kind.
    evaluated: step of the last complete evaluation, or -1.
    evals: the last value of each metric.
    eval_steps: step of the last evaluation by each evaluator.
    first_evals: the first value of each metric.
    train: training metrics of the last log line.
    best: metric of the best checkpoint, or None.
    best_step: step of the best checkpoint.
    best_evals: metrics of the best checkpoint at the end of training.
    unimproved: evaluations since the best.
    unimproved_steps: steps from the best (or the start) to the last evaluation.
  """
  step: int = 0
  origin: str = ''
  base: str = ''
  positions: str = ''
  teachers: str = ''
  images: int = 0
  unreadable: int = 0
  flops: int = 0
  secs: float = 0.0
  device_secs_by_kind: dict[str, float] = dataclasses.field(
      default_factory=dict)
  evaluated: int = -1
  evals: dict[str, float] = dataclasses.field(default_factory=dict)
  eval_steps: dict[str, int] = dataclasses.field(default_factory=dict)
  first_evals: dict[str, float] = dataclasses.field(default_factory=dict)
  train: dict[str, float] = dataclasses.field(default_factory=dict)
  best: float | None = None
  best_step: int | None = None
  best_evals: dict[str, float] = dataclasses.field(default_factory=dict)
  unimproved: int = 0
  unimproved_steps: int = 0

  @classmethod
  def restore(cls, progress: Mapping[str, Any], *, step: int) -> 'Counters':
    """Returns the counters of the checkpoint of `step`."""
    known = {f.name for f in dataclasses.fields(cls)}
    return cls(**{
        **{k: v for k, v in progress.items() if k in known}, 'step': step})

  def add_step(self, images: int, *, flops_per_image: int) -> None:
    """Counts a step on `images`."""
    self.step += 1
    self.images += images
    self.flops += images * flops_per_image

  def add_metric(self, value: float, *, mode: Literal['max', 'min']) -> None:
    """Updates the best checkpoint and patience from an evaluation's metric."""
    sign = 1 if mode == 'max' else -1
    if math.isfinite(value) and (
        self.best is None or sign * value > sign * self.best):
      self.best, self.best_step, self.best_evals = value, self.step, {}
      self.unimproved = self.unimproved_steps = 0
    else:
      self.unimproved += 1
      self.unimproved_steps = self.step - (self.best_step or 0)

  def forget_best(self) -> None:
    """Starts again without a best checkpoint."""
    self.best, self.best_step, self.best_evals = None, None, {}
    self.unimproved = self.unimproved_steps = 0

  def keep_evals(self, evaluators: Collection[str]) -> None:
    """Forgets the metrics of all other evaluators."""
    self.evals, self.first_evals = (
        {name: value for name, value in metrics.items()
         if name.partition('/')[0] in evaluators}
        for metrics in (self.evals, self.first_evals))

  def is_out_of_patience(
      self, patience: schema.Duration | int | None, **sizes: int) -> bool:
    """Whether the best value is at least `patience` old; False for None.

    Args:
      patience: a duration, or a number of evaluations.
      **sizes: see `schema.Duration.exact_steps`.
    """
    if patience is None or not self.unimproved:
      return False
    if isinstance(patience, int):
      return self.unimproved >= patience
    # 3 epochs of 1/3 step are one step, despite rounding.
    return self.unimproved_steps >= patience.exact_steps(**sizes) - 1e-9

  def add_evals(self, row: Mapping[str, float]) -> None:
    """Sets the metrics of an evaluation."""
    self.evals = {**self.evals, **row}
    self.eval_steps = {**self.eval_steps, **{
        name.partition('/')[0]: self.step for name in row}}
    self.first_evals = {**row, **self.first_evals}

  def add_time(self, secs: float, mesh: jax.sharding.Mesh) -> None:
    """Counts time on the devices of a mesh."""
    self.secs += secs
    kind, spent = mesh_lib.device_kind(mesh), self.device_secs_by_kind
    self.device_secs_by_kind = {
        **spent, kind: spent.get(kind, 0.0) + mesh.size * secs}

  @property
  def core_hours_by_kind(self) -> dict[str, float]:
    """Hours x cores, by device kind."""
    return {kind: secs * getattr(hardware(kind), 'cores', 1) / 3600
            for kind, secs in self.device_secs_by_kind.items()}

  @property
  def totals(self) -> dict[str, float]:
    """FLOPs in units of 1e18, as in Table 6 of the paper, and hours.

    With unreadable images, also their number.
    """
    return {**({'unreadable': self.unreadable} if self.unreadable else {}),
            'exaflops': self.flops / 1e18,
            'device_hours': sum(self.device_secs_by_kind.values()) / 3600,
            'core_hours': sum(self.core_hours_by_kind.values())}
