"""What a step takes at the least: three speeds, and what each is asked for.

    time >= max(operations / peak, bytes / bandwidth, bytes sent / links)

(Williams et al., Roofline, CACM 52(4), 2009, with the links as a third roof.)
All three at once would need each to wait for nothing; one after the other is
what a step takes whose parts overlap in nothing, each at full speed. Real steps
lie between the two or above: these are estimates, not measurements.
"""

from collections.abc import Mapping
import dataclasses

from vit_jax.parallel import hardware
from vit_jax.plan import measure
from vit_jax.plan.compiled import collectives

DAY_SECS = 86_400


@dataclasses.dataclass(frozen=True)
class Roof:
  """One of the speeds.

  Attributes:
    name: 'compute', 'memory' or 'interconnect'.
    amount: that a step asks of a device: operations or bytes.
    per_sec: that a device does at best.
    source: of that figure.
  """
  name: str
  amount: float
  per_sec: float
  source: str

  @property
  def secs(self) -> float:
    """The least time of a step."""
    return self.amount / self.per_sec


@dataclasses.dataclass(frozen=True)
class Estimate:
  """What a step would take if its roofs were met. All of it is estimated.

  Attributes:
    roofs: those whose speed and amount are known.
    images: of a global batch.
    model_flops: of the model on a device, without what is computed again.
    peak_flops: of a device, per second.
    cores: of all devices.
    core: what a core is of, 'TPUv3'.
  """
  roofs: Mapping[str, Roof]
  images: int
  model_flops: float
  peak_flops: float
  cores: int
  core: str

  @property
  def bound(self) -> Roof:
    """The roof that is met first."""
    return max(self.roofs.values(), key=lambda roof: roof.secs)

  @property
  def step_secs(self) -> float:
    """Of a step whose roofs are met all at once."""
    return self.bound.secs

  @property
  def serial_secs(self) -> float:
    """Of a step whose roofs are met one after the other."""
    return sum(roof.secs for roof in self.roofs.values())

  def images_per_sec(self, step_secs: float) -> float:
    """Images of all devices together."""
    return self.images / step_secs

  def utilisation(self, step_secs: float) -> float:
    """The share of the peak that the model's own operations take."""
    return self.model_flops / step_secs / self.peak_flops

  def core_days(self, step_secs: float, *, steps: int) -> float:
    """Days times cores of a whole training."""
    return step_secs * steps * self.cores / DAY_SECS


def estimate(measured: measure.Measured) -> Estimate | None:
  """Returns the bounds of a step, or None where the device's are not known.

  Args:
    measured: a step that was compiled, or one that was refused: then the bound
      is that of its operations alone.
  """
  row = hardware.find(measured.device_kind)
  if row is None:
    return None
  roofs = [Roof('compute', measured.flops, row.peak_flops, row.source)]
  if measured.work is not None:
    # What the compiler made of the step, with all that it computes again.
    roofs = [
        Roof('compute', measured.work.flops, row.peak_flops, row.source),
        Roof('memory', measured.work.bytes, row.memory_bytes_per_sec,
             row.source)]
    sent = sum(total.wire_bytes for total in collectives.total(
        measured.collectives).values())
    if row.link_bytes_per_sec and sent:
      roofs.append(Roof(
          'interconnect', sent, row.link_bytes_per_sec, row.source))
  return Estimate(
      roofs={roof.name: roof for roof in roofs}, images=measured.images,
      model_flops=measured.training_flops, peak_flops=row.peak_flops,
      cores=row.cores * measured.devices, core=row.name)
