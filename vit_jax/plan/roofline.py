"""Roofline estimate: lower bounds of the time of a step.

    secs >= max(FLOPs / peak, bytes / bandwidth, bytes sent / link bandwidth)

(Williams et al., Roofline, CACM 52(4), 2009, with the interconnect as a third
bound.) The maximum assumes that compute, memory and communication overlap
completely; their sum assumes no overlap at all. Neither includes launch
overhead or operations below their peak speed: these are not measurements.
"""

from collections.abc import Mapping
import dataclasses

from vit_jax.parallel import hardware
from vit_jax.plan import step_cost
from vit_jax.plan.compiled import collectives

DAY_SECS = 86_400


@dataclasses.dataclass(frozen=True)
class Bound:
  """A lower bound of the time of a step.

  Attributes:
    name: 'compute', 'memory' or 'interconnect'.
    amount: FLOPs or bytes per device and step.
    per_sec: peak FLOPs or bytes per second of a device.
    source: source of that peak.
  """
  name: str
  amount: float
  per_sec: float
  source: str

  @property
  def secs(self) -> float:
    """Seconds of a step at the peak."""
    return self.amount / self.per_sec


@dataclasses.dataclass(frozen=True)
class Estimate:
  """Estimated speed of a step.

  Attributes:
    bounds: bounds by name, as far as their peaks are known.
    images: global batch size.
    model_flops: FLOPs of the model per device, without recomputation.
    peak_flops: peak FLOPs per second of a device.
    cores: cores of all devices.
    core: type of a core, such as 'TPUv3'.
  """
  bounds: Mapping[str, Bound]
  images: int
  model_flops: float
  peak_flops: float
  cores: int
  core: str

  @property
  def bottleneck(self) -> Bound:
    """The largest bound."""
    return max(self.bounds.values(), key=lambda bound: bound.secs)

  @property
  def overlapped_secs(self) -> float:
    """Seconds of a step whose bounds overlap completely."""
    return self.bottleneck.secs

  @property
  def sequential_secs(self) -> float:
    """Seconds of a step whose bounds do not overlap."""
    return sum(bound.secs for bound in self.bounds.values())

  def images_per_sec(self, step_secs: float) -> float:
    """Images per second of all devices."""
    return self.images / step_secs

  def mfu(self, step_secs: float) -> float:
    """Model FLOPs utilisation: fraction of the peak, without recomputation."""
    return self.model_flops / step_secs / self.peak_flops

  def core_days(self, step_secs: float, *, steps: int) -> float:
    """Core-days of a whole training run."""
    return step_secs * steps * self.cores / DAY_SECS


def estimate(cost: step_cost.StepCost) -> Estimate | None:
  """Returns the estimate of a step, or None if its device is unknown."""
  row = hardware.find(cost.device_kind)
  if row is None:
    return None
  bounds = [Bound('compute', cost.flops, row.peak_flops, row.source)]
  if cost.traffic_bytes is not None:
    bounds.append(Bound(
        'memory', cost.traffic_bytes, row.memory_bytes_per_sec, row.source))
  sent = sum(total.wire_bytes for total in collectives.total(
      cost.collectives).values())
  if row.link_bytes_per_sec and sent:
    bounds.append(Bound(
        'interconnect', sent, row.link_bytes_per_sec, row.source))
  return Estimate(
      bounds={bound.name: bound for bound in bounds}, images=cost.images,
      model_flops=cost.training_flops, peak_flops=row.peak_flops,
      cores=row.cores * cost.devices, core=row.name)
