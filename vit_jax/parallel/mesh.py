"""The mesh of devices: data x fsdp x tensor."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import jax
from jax.experimental import mesh_utils

from vit_jax import schema
from vit_jax import types


@dataclasses.dataclass(frozen=True)
class Preset:
  """How a model of some size lies where enough devices are.

  Attributes:
    up_to: parameters of the largest model that it is for.
    fsdp: devices that split the parameters; fewer where there are fewer.
    tensor: devices that share each image; what is left when `fsdp` is full.
    why: in words.
  """
  up_to: float
  fsdp: int
  tensor: int
  why: str


# In float32, a parameter takes 16 bytes with its gradient and Adam's moments,
# of the 16 GiB of a TPU v3 core; the rest is for activations. The more devices
# split a parameter, the more often it must travel: so as few as leave a core
# some 1 GiB of them, and `data` takes all others.
PRESETS: Mapping[str, Preset] = {
    'data': Preset(200e6, 1, 1, 'Ti, S, B: at most 3 GB, on every device'),
    'L': Preset(500e6, 8, 1, 'L, R101x3: 5 to 8 GB'),
    'H': Preset(950e6, 8, 1, 'H, R152x4: 10 to 15 GB'),
    'g': Preset(1.5e9, 16, 1, 'g: 16 GB, all that a core has'),
    'G': Preset(5e9, 32, 1, 'G: 30 GB'),
    # A layer of 450 million parameters, which a device holds while it works on
    # it, with its gradient: 4 GB where `tensor` is 1.
    '22B': Preset(math.inf, 64, 8, 'ViT-22B: 350 GB, 7 GB of it a layer'),
}


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """Section `mesh`: devices along each axis; -1 takes all that are left.

  Attributes:
    data: replicas that see different images and hold the same parameters.
    fsdp: replicas that see different images and split the parameters; None
      takes the preset's.
    tensor: devices that share each image's heads and MLP units; None takes the
      preset's.
    preset: a row of `PRESETS`, or 'auto' for the first that is large enough for
      the model. What is written beside it comes first.
  """
  data: int = -1
  fsdp: int | None = None
  tensor: int | None = None
  preset: str = 'auto'

  def __post_init__(self):
    schema.check_name(self.preset, ['auto', *PRESETS], what='mesh.preset')
    sizes = [s for s in (self.data, self.fsdp, self.tensor) if s is not None]
    if sizes.count(-1) > 1 or any(s == 0 or s < -1 for s in sizes):
      raise ValueError(
          'Mesh axes are positive, and at most one of them -1; got '
          f'{dict(zip(types.MESH_AXES, (self.data, self.fsdp, self.tensor)))}.'
          ' None, for fsdp and tensor, takes the preset.')

  @property
  def sizes(self) -> tuple[int, int, int]:
    """Sizes in the order of `types.MESH_AXES`, without a preset."""
    return self.data, self.fsdp or 1, self.tensor or 1


def parse(section: Mapping[str, Any]) -> MeshConfig:
  """Returns the typed record of the section `mesh`."""
  return schema.parse(MeshConfig, section, where='mesh')


def preset(config: MeshConfig, num_params: int | None) -> str:
  """Returns the name of the preset that a model gets.

  Args:
    config: the section.
    num_params: parameters of the model; None if not known, which 'auto' takes
      for few.
  """
  if config.preset != 'auto':
    return config.preset
  return next(name for name, row in PRESETS.items()
              if (num_params or 0) <= row.up_to)


def resolve(
    config: MeshConfig, num_devices: int, *, num_params: int | None = None,
) -> tuple[int, int, int]:
  """Returns the sizes of the axes over so many devices.

  A preset's sizes are reached where the devices allow, `fsdp` first: on one
  device, all axes are 1.

  Args:
    config: the section.
    num_devices: to be filled.
    num_params: see `preset`.

  Raises:
    ValueError: if the axes do not fill the devices exactly.
  """
  row = PRESETS[preset(config, num_params)]
  taken = math.prod(
      s for s in (config.data, config.fsdp, config.tensor) if s and s > 0)
  left, rest = divmod(num_devices, taken)
  fsdp, tensor = config.fsdp, config.tensor
  if fsdp is None:
    # Figures are powers of two: this is the largest that divides both.
    fsdp = 1 if tensor == -1 else math.gcd(left, row.fsdp)
    left //= fsdp
  if tensor is None:
    tensor = 1 if fsdp == -1 else math.gcd(left, row.tensor)
    left //= tensor
  sizes = (left if config.data == -1 else config.data,
           left if fsdp == -1 else fsdp, left if tensor == -1 else tensor)
  if rest or math.prod(sizes) != num_devices:
    asked = dict(zip(types.MESH_AXES, (config.data, fsdp, tensor)))
    raise ValueError(
        f'The mesh {asked} does not fill {num_devices} device'
        f'{"s" * (num_devices > 1)}. '
        + (f'The product of the others, {taken}, must divide {num_devices}.'
           if -1 in asked.values() else
           f'Make the product of the axes {num_devices}, or set one axis to '
           '-1.'))
  return sizes


def build(
    config: MeshConfig, devices: Sequence[jax.Device] | None = None, *,
    num_params: int | None = None,
) -> jax.sharding.Mesh:
  """Returns the mesh over `devices`, by default all there are.

  Args:
    config: the section.
    devices: of the mesh.
    num_params: of the model, which a preset goes by.

  Raises:
    ValueError: if the devices do not fill the mesh exactly, or their links
      allow no such mesh.
  """
  devices = jax.devices() if devices is None else devices
  sizes = resolve(config, len(devices), num_params=num_params)
  try:
    _check_one_slice(devices)
    # `jax.make_mesh` splits no side of a slice but those of a v5e, and so
    # refuses 8 x 8 x 1 on 4 x 4 x 4 chips. What it does lay out is the same.
    laid_out = mesh_utils.create_device_mesh(
        sizes, devices, allow_split_physical_axes=True)
  except (NotImplementedError, ValueError, AssertionError) as error:
    asked = dict(zip(types.MESH_AXES, sizes))
    raise ValueError(
        f'The mesh {asked} cannot be laid out on {len(devices)} x '
        f'{devices[0].device_kind}: {error or "their links allow it not"}. '
        'Take sizes that divide the sides of the slice (powers of two), all of '
        'one slice.') from error
  return jax.sharding.Mesh(
      laid_out, types.MESH_AXES,
      axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))


def _check_one_slice(devices: Sequence[jax.Device]) -> None:
  """Raises where devices of several slices are taken for one torus.

  Machines with GPUs or CPUs are numbered as slices too, and lie as they come.
  """
  slices = {getattr(device, 'slice_index', 0) for device in devices
            if device.platform == 'tpu'}
  if len(slices) > 1:
    raise ValueError(f'they are of {len(slices)} slices')


def describe(
    config: MeshConfig, mesh: jax.sharding.Mesh, num_params: int,
) -> str:
  """Returns the mesh, and where its sizes come from, in words."""
  name = preset(config, num_params)
  chosen = config.fsdp is None or config.tensor is None
  return ' x '.join(f'{axis} {n}' for axis, n in mesh.shape.items()) + (
      f' (preset {name})' if chosen and name != 'data' else '')


def data_parallelism(mesh: jax.sharding.Mesh) -> int:
  """Returns into how many parts a batch is split."""
  return mesh.shape[types.DATA] * mesh.shape[types.FSDP]


def replicas(mesh: jax.sharding.Mesh) -> int:
  """Returns how many devices hold all parameters; 1 where they are split."""
  return mesh.size if mesh.shape[types.DATA] == mesh.size else 1
