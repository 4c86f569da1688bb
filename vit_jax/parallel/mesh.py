"""The mesh of devices: data x fsdp x tensor."""

from collections.abc import Mapping, Sequence
import dataclasses
import math

import jax
from jax.experimental import mesh_utils

from vit_jax import console
from vit_jax import schema
from vit_jax import types
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class Preset:
  """Mesh axes for models up to some size, given enough devices.

  Attributes:
    max_params: parameters of the largest model.
    fsdp: size of the axis `fsdp`, or less if there are fewer devices.
    tensor: size of the axis `tensor`, filled after `fsdp`.
  """
  max_params: float
  fsdp: int
  tensor: int


# A float32 parameter takes 16 bytes with its gradient and Adam's moments. Few
# devices share it, to limit communication: just enough for about 1 GiB of
# parameters on each core of a TPU v3 (16 GiB). The others form the axis `data`.
PRESETS: Mapping[str, Preset] = {
    'data': Preset(200e6, 1, 1),  # Ti, S, B: at most 3 GB.
    'L': Preset(500e6, 8, 1),     # L, R101x3: 5 to 8 GB.
    'H': Preset(950e6, 8, 1),     # H, R152x4: 10 to 15 GB.
    'g': Preset(1.5e9, 16, 1),    # g: 16 GB.
    'G': Preset(5e9, 32, 1),      # G: 30 GB.
    # ViT-22B: 350 GB. A gathered layer of 450 million parameters takes 4 GB
    # with its gradient, unless `tensor` shards it.
    '22B': Preset(math.inf, 64, 8),
}


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """Section `mesh`: devices along each axis; -1 takes all remaining devices.

  Attributes:
    data: size of the data-parallel axis, whose devices hold the same
      parameters; -1 takes all remaining devices.
    fsdp: size of the axis that shards batches and parameters; None takes the
      preset.
    tensor: size of the tensor-parallel axis, which shards heads and MLP units;
      None takes the preset.
    preset: 'data', 'L', 'H', 'g', 'G' or '22B' (docs/distributed.md), or
      'auto' for the first that is large enough for the model. Explicit axes
      override it.
  """
  data: int = -1
  fsdp: int | None = None
  tensor: int | None = None
  preset: str = 'auto'

  def __post_init__(self):
    schema.check_name(self.preset, ['auto', *PRESETS], what='mesh.preset')
    sizes = [s for s in (self.data, self.fsdp, self.tensor) if s is not None]
    if sizes.count(-1) > 1 or any(s == 0 or s < -1 for s in sizes):
      raise UserError(
          'Mesh axes must be positive, except that one may be -1; got '
          f'{dict(zip(types.MESH_AXES, (self.data, self.fsdp, self.tensor)))}.'
          ' For fsdp and tensor, None takes the preset.')


def preset(config: MeshConfig, num_params: int | None) -> str:
  """Returns the name of the preset for a model; None returns the smallest."""
  if config.preset != 'auto':
    return config.preset
  return next(name for name, row in PRESETS.items()
              if (num_params or 0) <= row.max_params)


def resolve(
    config: MeshConfig, num_devices: int, *, num_params: int | None = None,
) -> tuple[int, int, int]:
  """Returns the sizes of the axes over `num_devices`.

  With few devices, the preset's `tensor` is reduced before its `fsdp`.

  Raises:
    UserError: if the axes do not fill the devices exactly.
  """
  row = PRESETS[preset(config, num_params)]
  taken = math.prod(
      s for s in (config.data, config.fsdp, config.tensor) if s and s > 0)
  left, rest = divmod(num_devices, taken)
  fsdp, tensor = config.fsdp, config.tensor
  if fsdp is None:
    fsdp = 1 if tensor == -1 else math.gcd(left, row.fsdp)
    left //= fsdp
  if tensor is None:
    tensor = 1 if fsdp == -1 else math.gcd(left, row.tensor)
    left //= tensor
  requested = config.data, fsdp, tensor
  data, fsdp, tensor = (left if s == -1 else s for s in requested)
  if rest or data * fsdp * tensor != num_devices:
    raise UserError(
        f'The mesh {dict(zip(types.MESH_AXES, requested))} does not fill '
        f'{console.format_count(num_devices, "device")}. Make the product of '
        f'the axes {num_devices}; one axis of -1 takes what the others leave.')
  return data, fsdp, tensor


def build(
    config: MeshConfig, devices: Sequence[jax.Device] | None = None, *,
    num_params: int | None = None) -> jax.sharding.Mesh:
  """Builds the mesh over `devices`, by default all devices.

  `num_params` is the number of parameters, which determines the preset.

  Raises:
    UserError: if the devices do not fill the mesh exactly, or their topology
      does not allow it.
  """
  devices = jax.devices() if devices is None else devices
  sizes = resolve(config, len(devices), num_params=num_params)
  # Hosts with GPUs or CPUs also have slice indices, which do not matter.
  slices = {getattr(device, 'slice_index', 0) for device in devices
            if device.platform == 'tpu'}
  try:
    if len(slices) > 1:
      raise UserError(f'the devices belong to {len(slices)} slices')
    # `jax.make_mesh` does not split sides of a slice, except on v5e, and so
    # rejects 8 x 8 x 1 on 4 x 4 x 4 chips. Other meshes are the same.
    device_array = mesh_utils.create_device_mesh(
        sizes, devices, allow_split_physical_axes=True)
  except (NotImplementedError, ValueError, AssertionError) as error:
    requested = dict(zip(types.MESH_AXES, sizes))
    raise UserError(
        f'The mesh {requested} is not possible on {len(devices)} x '
        f'{devices[0].device_kind}: {error or "unsupported topology"}. Use '
        'sizes that divide the sides of one slice (powers of two).'
    ) from error
  return jax.sharding.Mesh(
      device_array, types.MESH_AXES,
      axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))


def describe(
    config: MeshConfig, mesh: jax.sharding.Mesh, num_params: int) -> str:
  """Formats the axes and the preset: 'data 8 x fsdp 8 x tensor 1 (...)'."""
  name = preset(config, num_params)
  uses_preset = config.fsdp is None or config.tensor is None
  return ' x '.join(f'{axis} {n}' for axis, n in mesh.shape.items()) + (
      f' (preset {name})' if uses_preset and name != 'data' else '')


def data_parallelism(mesh: jax.sharding.Mesh) -> int:
  """Returns the number of shards of a batch."""
  return mesh.shape[types.DATA] * mesh.shape[types.FSDP]


def check_batch_size(
    setting: str, batch_size: int, mesh: jax.sharding.Mesh, microbatches: int,
) -> None:
  """Raises unless the batch size divides over devices and microbatches.

  `setting` is its config key.
  """
  divisor = data_parallelism(mesh) * microbatches
  if batch_size % divisor:
    raise UserError(
        f'{setting} {batch_size} does not divide over '
        f'data x fsdp = {data_parallelism(mesh)} devices'
        + f' in {microbatches} microbatches' * (microbatches > 1)
        + f' (mesh {dict(mesh.shape)}). Use a multiple of {divisor}.')


def device_kind(mesh: jax.sharding.Mesh) -> str:
  """Returns the kind of the devices of a mesh."""
  return mesh.devices.flat[0].device_kind
