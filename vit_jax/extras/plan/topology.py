"""TPU slices by name, as compilation targets that need no TPU.

    topology.devices('v3-2048')    # or 'v3:32x32' chips: 2,048 cores
    topology.devices('v5p-512')    # or 'v5p:4x8x8': 256 chips of two cores

`libtpu` contains the compiler for every TPU version. It returns device
descriptions: programs can be compiled for them, but arrays cannot be placed on
them.

A slice is named after its number of TensorCores; a chip has one core in v5e and
v6e and two in other versions (https://cloud.google.com/tpu/docs, tables of
configurations). A JAX device is a core in v2 and v3 and a chip from v4 on.
"""

from collections.abc import Mapping, Sequence
import importlib.util
import math
import os
import re
from typing import Any

import jax
from jax.experimental import topologies

from vit_jax import schema
from vit_jax.exceptions import UserError

_FLAT = {8: '2x2', 32: '4x4', 64: '4x8', 128: '8x8', 256: '8x16', 512: '16x16',
         1024: '16x32', 2048: '32x32'}
_CUBES = {8: '2x2x1', 16: '2x2x2', 32: '2x2x4', 64: '2x4x4', 128: '4x4x4',
          256: '4x4x8', 512: '4x8x8', 1024: '8x8x8', 2048: '8x8x16',
          4096: '8x16x16'}
_CHIPS = {1: '1x1', 4: '2x2', 8: '2x4', 16: '4x4', 32: '4x8', 64: '8x8',
          128: '8x16', 256: '16x16'}

# Shape in chips of each slice offered by Google, by the number in its name.
SLICES: Mapping[str, Mapping[int, str]] = {
    'v2': {n: _FLAT[n] for n in (8, 32, 128, 256, 512)},
    'v3': _FLAT,
    'v4': _CUBES,
    'v5e': _CHIPS,
    'v5p': {**_CUBES, 8192: '16x16x16', 12288: '16x16x24'},
    'v6e': _CHIPS,
}
_ALIASES = {'v5litepod': 'v5e', 'v5lite': 'v5e', 'v6lite': 'v6e'}
# Without these, only one process at a time can load libtpu, and it queries
# Google's metadata server for the machine type.
_ENVIRONMENT: Mapping[str, str] = {
    'ALLOW_MULTIPLE_LIBTPU_LOAD': '1', 'TPU_SKIP_MDS_QUERY': '1',
    'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_ACCELERATOR_TYPE': 'v3-8'}


def parse(name: str) -> tuple[str, str]:
  """Returns version and shape in chips: ('v3', '32x32') for 'v3-2048'.

  Args:
    name: a slice, 'v3-2048', or its shape in chips, 'v3:32x32'.

  Raises:
    UserError: if the slice does not exist or the shape is impossible.
  """
  match = re.fullmatch(r'(?:tpu[-_ ]?)?(v\w+?)(?:-(\d+)|:(\d+(?:x\d+)*))',
                       name.strip().lower())
  if not match:
    slices = '; '.join(f'{version}-{{{",".join(map(str, sizes))}}}'
                       for version, sizes in SLICES.items())
    raise UserError(
        'A topology is a TPU slice, such as v3-8, or a shape in chips, such as '
        f'v3:2x2, but got {name!r}. Slices: {slices}.')
  version = _ALIASES.get(match[1], match[1])
  schema.check_name(version, list(SLICES), what='version of TPU')
  shapes = SLICES[version]
  if match[3]:
    _check_shape(version, match[3])
    return version, match[3]
  if int(match[2]) not in shapes:
    raise UserError(
        f'There is no slice {version}-{match[2]}. Slices of {version}: '
        f'{", ".join(f"{version}-{n}" for n in shapes)}.')
  return version, shapes[int(match[2])]


def _check_shape(version: str, shape: str) -> None:
  largest = list(SLICES[version].values())[-1]
  sides = [int(n) for n in shape.split('x')]
  limit = [int(n) for n in largest.split('x')]
  if (len(sides) != len(limit) or 0 in sides
      or math.prod(sides) > math.prod(limit)):
    raise UserError(
        f'A shape of {version} has {len(limit)} sides in chips, at most '
        f'{largest}, but got {shape!r}.')


def devices(name: str) -> Sequence[jax.Device]:
  """Returns descriptions of the devices of a slice or shape.

  Loads libtpu without taking a TPU from other processes.

  Raises:
    UserError: if the slice does not exist or libtpu is not installed.
  """
  version, shape = parse(name)
  if importlib.util.find_spec('libtpu') is None:
    raise UserError(
        'A topology needs the TPU compiler libtpu, which needs no TPU but is '
        'not installed. In an environment of its own (docs/plans.md): '
        "pip install '.[plan]'")
  _set_environment()
  options: dict[str, Any] = {}
  if version == 'v4':  # A device is a chip of two cores, as on real machines.
    options['chip_config_name'] = 'megacore'
  sides = [int(n) for n in shape.split('x')]
  if math.prod(sides) < 4:  # A host normally has four chips.
    options['chips_per_host_bounds'] = (sides + [1, 1])[:3]
  return topologies.get_topology_desc(
      platform='tpu', topology_name=f'{version}:{shape}', **options).devices


def local_or_named(name: str) -> Sequence[jax.Device]:
  """Returns `devices`, or the local ones without a name."""
  if not name:
    return jax.devices()
  parse(name)
  # Leaves the local accelerators to other processes.
  jax.config.update('jax_platforms', 'cpu')
  return devices(name)


def _set_environment() -> None:
  for variable, value in _ENVIRONMENT.items():
    os.environ.setdefault(variable, value)
