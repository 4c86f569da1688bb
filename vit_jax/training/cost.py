"""Cost of a run: FLOPs, and time of the devices.

    exaFLOPs = 3 x FLOPs of a forward pass x images / 1e18
    core-hours = seconds x devices x cores per device / 3600

The backward pass computes each product of the forward pass twice, for the
gradients of inputs and of parameters: three in all, as in Table 6 of the paper.
With frozen parameters, the remaining products are counted instead. Excluded are
rematerialisation, steps repeated after a kill (their time counts, if it was
before the checkpoint), and the start of the run.
"""

from collections.abc import Mapping
import dataclasses

from vit_jax import console as console_lib
from vit_jax.parallel import hardware

# Device kind in checkpoints of versions that did not record it.
UNKNOWN = 'unknown'


def training_flops(forward: int) -> int:
  """Returns the FLOPs of training all parameters."""
  return 3 * forward


@dataclasses.dataclass(frozen=True)
class Cost:
  """Cost of training; `device_secs_by_kind` are seconds x devices."""
  images: int
  flops: int
  device_secs_by_kind: Mapping[str, float]

  @property
  def exaflops(self) -> float:
    """FLOPs in units of 1e18, as in Table 6 of the paper."""
    return self.flops / 1e18

  @property
  def device_hours(self) -> float:
    """Hours x devices of all kinds."""
    return sum(self.device_secs_by_kind.values()) / 3600

  @property
  def core_hours_by_kind(self) -> dict[str, float]:
    """Hours x cores, by device kind."""
    return {kind: secs * hardware.cores(kind) / 3600
            for kind, secs in self.device_secs_by_kind.items()}

  @property
  def core_hours(self) -> float:
    """Hours x cores of all kinds."""
    return sum(self.core_hours_by_kind.values())


def utilisation(
    flops_per_sec: float, *, kind: str, devices: int,
) -> float | None:
  """Returns the fraction of the devices' peak FLOP/s, or None if unknown."""
  row = hardware.find(kind)
  return flops_per_sec / (row.peak_flops * devices) if row else None


def describe(exaflops: float, core_hours_by_kind: Mapping[str, float]) -> str:
  """Returns '783 exaFLOPs, 1,204 core-hours on TPU v3'."""
  hours = ' and '.join(
      f'{console_lib.format_number(value)} core-hours on {kind}'
      for kind, value in core_hours_by_kind.items())
  return (f'{console_lib.format_number(exaflops)} exaFLOPs'
          + (f', {hours}' if hours else ''))
