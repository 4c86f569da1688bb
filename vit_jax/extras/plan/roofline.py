"""Roofline estimate: lower bounds of the step time.

    secs >= max(FLOPs / peak, bytes / bandwidth, bytes sent / link bandwidth)

(Williams et al., Roofline, CACM 52(4), 2009, with the interconnect as a third
bound.) The maximum assumes that compute, memory and communication overlap
completely; their sum assumes no overlap at all. Neither includes launch
overhead or operations below their peak speed: these are not measurements.
"""

from collections.abc import Mapping
import dataclasses

from vit_jax.extras.plan import hardware
from vit_jax.extras.plan import step_cost
from vit_jax.extras.plan.compiled import collectives

HOUR_SECS = 3600
DAY_SECS = 86_400


@dataclasses.dataclass(frozen=True)
class Bound:
  """Step time at a peak speed, in FLOPs or bytes per second of a device."""
  secs: float
  per_sec: float


@dataclasses.dataclass(frozen=True)
class Speed:
  """Speed of all devices, and the hours and core-days of a training run.

  `mfu` is the fraction of the peak FLOP/s, without recomputation.
  """
  step_secs: float
  steps_per_sec: float
  images_per_sec: float
  mfu: float
  hours: float
  core_days: float


@dataclasses.dataclass(frozen=True)
class Estimate:
  """Estimated speed of a training run.

  Attributes:
    core: type of a core, such as 'TPUv3'.
    source: source of the peaks.
    bounds: 'compute', 'memory' and 'interconnect', if known and not zero.
    bottleneck: the largest bound.
    full_overlap: speed if the bounds overlap completely.
    no_overlap: speed if they do not overlap.
  """
  core: str
  source: str
  bounds: Mapping[str, Bound]
  bottleneck: str
  full_overlap: Speed
  no_overlap: Speed


def estimate(cost: step_cost.StepCost, *, total_steps: int) -> Estimate | None:
  """Returns the estimate; None for an unknown device or a failed compilation.
  """
  row = hardware.find(cost.device_kind)
  if row is None or cost.traffic_bytes is None:
    return None
  sent = sum(total.wire_bytes for total in collectives.total(
      cost.collectives).values())
  bounds = {
      name: Bound(amount / per_sec, per_sec) for name, amount, per_sec in (
          ('compute', cost.flops, row.peak_flops),
          ('memory', cost.traffic_bytes, row.memory_bytes_per_sec),
          ('interconnect', sent, row.link_bytes_per_sec))
      if amount and per_sec}

  def speed(step_secs: float) -> Speed:
    return Speed(
        step_secs=step_secs, steps_per_sec=1 / step_secs,
        images_per_sec=cost.images / step_secs,
        mfu=cost.training_flops / step_secs / row.peak_flops,
        hours=step_secs * total_steps / HOUR_SECS,
        core_days=(step_secs * total_steps * row.cores * cost.devices
                   / DAY_SECS))

  bottleneck = max(bounds, key=lambda name: bounds[name].secs)
  return Estimate(
      core=row.name, source=row.source, bounds=bounds, bottleneck=bottleneck,
      full_overlap=speed(bounds[bottleneck].secs),
      no_overlap=speed(sum(bound.secs for bound in bounds.values())))
