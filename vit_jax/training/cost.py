"""What a run has cost: operations, and the time of the devices it held.

    exaFLOPs = 3 x operations of a forward pass x images / 1e18
    core-hours = seconds x devices x cores of a device / 3600

The backward pass does every product of the forward pass twice, once for the
gradient of its input and once for that of its parameters: three in all, as
Table 6 of the paper counts. Where parameters are frozen, the products of the
gradient that is left are counted instead. What rematerialisation adds is left
out: these are the model's operations, the same on any hardware. So is the work
that a kill destroyed and that was done again: its time before the last
checkpoint counts, its operations count once. Time runs from the first batch on:
what a start takes to compile and to restore is left out.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax import console as console_lib
from vit_jax.parallel import hardware

# Of what ran before device kinds were kept.
UNKNOWN = 'unknown'


def training_flops(forward: int) -> int:
  """Returns the operations of training all of a model on an image.

  Args:
    forward: those of a forward pass.
  """
  return 3 * forward


@dataclasses.dataclass(frozen=True)
class Cost:
  """What has been spent.

  Attributes:
    images: trained on.
    flops: operations of training on them.
    device_secs_by_kind: seconds times devices, for each kind of device.
  """
  images: int
  flops: int
  device_secs_by_kind: Mapping[str, float]

  @property
  def exaflops(self) -> float:
    """Operations in units of 1e18, as the paper's Table 6."""
    return self.flops / 1e18

  @property
  def device_hours(self) -> float:
    """Hours times devices, of any kind."""
    return sum(self.device_secs_by_kind.values()) / 3600

  @property
  def core_hours_by_kind(self) -> dict[str, float]:
    """Hours times cores, for each kind of device."""
    return {kind: secs * hardware.cores(kind) / 3600
            for kind, secs in self.device_secs_by_kind.items()}

  @property
  def core_hours(self) -> float:
    """Hours times cores, of any kind."""
    return sum(self.core_hours_by_kind.values())

  def figures(self) -> dict[str, Any]:
    """Returns the figures of a summary."""
    return {'images': self.images, 'flops': self.flops,
            'exaflops': self.exaflops, 'device_hours': self.device_hours,
            'core_hours': self.core_hours,
            'core_hours_by_kind': self.core_hours_by_kind}


def spent(
    before: Mapping[str, float], *, kind: str, device_secs: float,
) -> dict[str, float]:
  """Returns device-seconds by kind, with those of this start added."""
  return {**before, kind: before.get(kind, 0.0) + device_secs}


def utilisation(
    flops_per_sec: float, *, kind: str, devices: int,
) -> float | None:
  """Returns the share of the devices' peak, or None where it is not known."""
  row = hardware.find(kind)
  return flops_per_sec / (row.peak_flops * devices) if row else None


def describe(exaflops: float, core_hours_by_kind: Mapping[str, float]) -> str:
  """Returns '783 exaFLOPs, 1,204 core-hours on TPU v3'."""
  hours = ' and '.join(
      f'{console_lib.format_number(value)} core-hours on {kind}'
      for kind, value in core_hours_by_kind.items())
  return (f'{console_lib.format_number(exaflops)} exaFLOPs'
          + (f', {hours}' if hours else ''))
