"""Machines that are not here, by name, for the compiler alone.

    topology.devices('v3-2048')    # or 'v3:32x32': 2,048 cores
    topology.devices('v5p-512')    # or 'v5p:4x8x8': 256 chips of two cores
    topology.devices('h100:8')     # GPUs: `gpus`

`libtpu` contains the compiler of every TPU and needs none. What it gives for a
topology are descriptions of devices: programs can be compiled for them, and no
array can be put on one.

A slice's name counts TensorCores; a chip of v5e and v6e has one, of the others
two (https://cloud.google.com/tpu/docs: the tables of configurations of each
version). JAX takes a core of v2 and v3 for a device, and a chip from v4 on.
"""

from collections.abc import Mapping, Sequence
import importlib.metadata
import math
import os
import re
from typing import Any

import jax
from jax.experimental import topologies
from packaging import requirements

from vit_jax import schema
from vit_jax.parallel import gpus
from vit_jax.parallel import hardware

_FLAT = {8: '2x2', 32: '4x4', 64: '4x8', 128: '8x8', 256: '8x16', 512: '16x16',
         1024: '16x32', 2048: '32x32'}
_CUBES = {8: '2x2x1', 16: '2x2x2', 32: '2x2x4', 64: '2x4x4', 128: '4x4x4',
          256: '4x4x8', 512: '4x8x8', 1024: '8x8x8', 2048: '8x8x16',
          4096: '8x16x16'}
_CHIPS = {1: '1x1', 4: '2x2', 8: '2x4', 16: '4x4', 32: '4x8', 64: '8x8',
          128: '8x16', 256: '16x16'}

# Chips along each side of Google's slices, by the number in their name.
SLICES: Mapping[str, Mapping[int, str]] = {
    'v2': {n: _FLAT[n] for n in (8, 32, 128, 256, 512)},
    'v3': _FLAT,
    'v4': _CUBES,
    'v5e': _CHIPS,
    'v5p': {**_CUBES, 8192: '16x16x16', 12288: '16x16x24'},
    'v6e': _CHIPS,
}
# What the same versions are called elsewhere.
_SAME = {'v5litepod': 'v5e', 'v5lite': 'v5e', 'v6lite': 'v6e'}
# A device is then a chip of two cores, as it is on a machine.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    'v4': {'chip_config_name': 'megacore'}}
# Otherwise one process at a time may load libtpu, and it asks Google's servers
# which machine this is, or complains that nobody says.
_ENVIRONMENT: Mapping[str, str] = {
    'ALLOW_MULTIPLE_LIBTPU_LOAD': '1', 'TPU_SKIP_MDS_QUERY': '1',
    'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_ACCELERATOR_TYPE': 'v3-8'}


def check(name: str) -> None:
  """Raises `ValueError` for what names no slice and no GPUs."""
  if gpus.parse(name) is None:
    parse(name)


def parse(name: str) -> tuple[str, str]:
  """Returns version and shape in chips: ('v3', '32x32') of 'v3-2048'.

  Args:
    name: a slice, 'v3-2048', or a shape in chips, 'v3:32x32'.

  Raises:
    ValueError: if the version is not known, or the slice or shape is not one
      that it has.
  """
  match = re.fullmatch(r'(?:tpu[-_ ]?)?(v\w+?)(?:-(\d+)|:(\d+(?:x\d+)*))',
                       name.strip().lower())
  if not match:
    raise ValueError(
        f'A topology is a slice, such as v3-8, or a shape in chips, such as '
        f'v3:2x2, or GPUs, such as h100:8, but this is {name!r}. Slices: '
        f'{_listed()}; GPUs: {", ".join(gpus.CHIPS)}.')
  version = _SAME.get(match[1], match[1])
  schema.check_name(version, list(SLICES), what='version of TPU')
  slices = SLICES[version]
  if match[2]:
    if int(match[2]) not in slices:
      raise ValueError(
          f'There is no slice {name}. Those of {version}: '
          f'{", ".join(f"{version}-{n}" for n in slices)}; or say the shape in '
          f'chips, such as {version}:{next(iter(slices.values()))}.')
    return version, slices[int(match[2])]
  sides = [int(n) for n in match[3].split('x')]
  dimensions = next(iter(slices.values())).count('x') + 1
  largest = list(slices.values())[-1]
  if (len(sides) != dimensions or 0 in sides
      or math.prod(sides) > math.prod(map(int, largest.split('x')))):
    raise ValueError(
        f'A shape of {version} has {dimensions} sides of chips, at most '
        f'{largest}, but is {match[3]!r}. For example '
        f'{", ".join(f"{version}:{shape}" for shape in slices.values())}.')
  return version, match[3]


def devices(name: str) -> Sequence[jax.Device]:
  """Returns descriptions of the devices of a topology.

  Starts libtpu, in a way that takes no TPU and minds nobody who has one.

  Args:
    name: as `parse` or `gpus.parse` takes it.

  Raises:
    ValueError: if the topology is not known, or its compiler not installed.
  """
  if gpus.parse(name) is not None:
    return gpus.devices(name)
  version, shape = parse(name)
  _check_libtpu()
  _set_environment()
  options = dict(_OPTIONS.get(version, {}))
  if math.prod(map(int, shape.split('x'))) < 4:
    # A host of fewer chips than the four that are usual.
    sides = [int(n) for n in shape.split('x')]
    options['chips_per_host_bounds'] = (sides + [1, 1])[:3]
  try:
    return topologies.get_topology_desc(
        platform='tpu', topology_name=f'{version}:{shape}', **options).devices
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(
        f'libtpu {importlib.metadata.version("libtpu")} has no topology '
        f'{version}:{shape}: {str(error).splitlines()[0]}. Slices that Google '
        f'has: {", ".join(f"{version}-{n}" for n in SLICES[version])}.'
    ) from error


def expect_no_tpu() -> None:
  """Lets JAX find that there is no TPU here without a page of warnings.

  Where libtpu is installed for its compiler alone, JAX's first look for devices
  starts it, and it asks Google's servers which machine this is. Changes nothing
  on a machine that has a TPU.
  """
  if not hardware.has_tpu():
    _set_environment()


def _set_environment() -> None:
  for variable, value in _ENVIRONMENT.items():
    os.environ.setdefault(variable, value)


def libtpu_requirement() -> str:
  """Returns what the installed JAX asks for: 'libtpu==0.0.42.*'."""
  for line in importlib.metadata.requires('jax') or ():
    found = requirements.Requirement(line)
    if found.name == 'libtpu':
      return f'libtpu{found.specifier}'
  return 'libtpu'


def _check_libtpu() -> None:
  try:
    importlib.metadata.version('libtpu')
  except importlib.metadata.PackageNotFoundError:
    raise ValueError(
        f'A topology needs the TPU compiler, {libtpu_requirement()}, which '
        'needs no TPU but is not installed. Install it with: pip install -r '
        'requirements-plan.txt') from None


def _listed() -> str:
  return '; '.join(
      f'{version}-{{{",".join(map(str, slices))}}}'
      for version, slices in SLICES.items())
