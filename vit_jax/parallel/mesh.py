"""The mesh of devices: data x fsdp x tensor."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import jax

from vit_jax import records
from vit_jax import types


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """Section `mesh`: devices along each axis; -1 takes all that are left.

  Attributes:
    data: replicas that see different images and hold the same parameters.
    fsdp: replicas that see different images and split the parameters.
    tensor: devices that share each image's heads and MLP units.
  """
  data: int = -1
  fsdp: int = 1
  tensor: int = 1

  def __post_init__(self):
    sizes = self.sizes
    if sizes.count(-1) > 1 or any(s == 0 or s < -1 for s in sizes):
      raise ValueError(
          'Mesh axes are positive, and at most one of them -1; got '
          f'{dict(zip(types.MESH_AXES, sizes))}.')

  @property
  def sizes(self) -> tuple[int, int, int]:
    """Sizes in the order of `types.MESH_AXES`."""
    return self.data, self.fsdp, self.tensor


def parse(section: Mapping[str, Any]) -> MeshConfig:
  """Returns the typed record of the section `mesh`."""
  return records.parse(MeshConfig, section, where='mesh')


def build(
    config: MeshConfig, devices: Sequence[jax.Device] | None = None,
) -> jax.sharding.Mesh:
  """Returns the mesh over `devices`, by default all there are.

  Raises:
    ValueError: if the devices do not fill the mesh exactly.
  """
  devices = jax.devices() if devices is None else devices
  fixed = math.prod(s for s in config.sizes if s != -1)
  sizes = tuple(len(devices) // fixed if s == -1 else s for s in config.sizes)
  if math.prod(sizes) != len(devices):
    raise ValueError(
        f'The mesh {dict(zip(types.MESH_AXES, config.sizes))} does not fill '
        f'{len(devices)} devices. Make the product of the axes '
        f'{len(devices)}, or set one axis to -1.')
  return jax.make_mesh(
      sizes, types.MESH_AXES, devices=devices,
      axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))


def data_parallelism(mesh: jax.sharding.Mesh) -> int:
  """Returns into how many parts a batch is split."""
  return mesh.shape[types.DATA] * mesh.shape[types.FSDP]
