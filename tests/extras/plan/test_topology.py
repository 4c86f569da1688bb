"""TPU slices are found by name, and known to the compiler if installed."""

import math

import pytest

from vit_jax.extras.plan import hardware
from vit_jax.extras.plan import topology
from vit_jax.parallel import mesh as mesh_lib

CORES = {'v2': 2, 'v3': 2, 'v4': 2, 'v5e': 1, 'v5p': 2, 'v6e': 1}


@pytest.mark.parametrize(('name', 'expected'), [
    ('v3-8', ('v3', '2x2')), ('v3-512', ('v3', '16x16')),
    ('v3-2048', ('v3', '32x32')), ('v5p:4x8x8', ('v5p', '4x8x8')),
    ('v5p-512', ('v5p', '4x8x8')), ('v5p-1024', ('v5p', '8x8x8')),
    ('v5litepod-16', ('v5e', '4x4')), ('v6e-1', ('v6e', '1x1')),
    ('TPU-v4-8', ('v4', '2x2x1')),
])
def test_names_are_parsed_to_shapes(name, expected):
  assert topology.parse(name) == expected


@pytest.mark.parametrize('version', topology.SLICES)
def test_a_slice_is_named_after_its_cores(version):
  for number, shape in topology.SLICES[version].items():
    assert math.prod(map(int, shape.split('x'))) * CORES[version] == number


@pytest.mark.parametrize(('name', 'words'), [
    ('v3', 'a TPU slice, such as v3-8.*Slices: v2-{8,'),
    ('v9-8', "version of TPU.*'v9'"),
    ('v5p:4x8', 'v5p has 3 sides'), ('v3:64x64', 'at most 32x32'),
    ('v3-12', 'no slice v3-12. Slices of v3: v3-8, v3-32'),
])
def test_unknown_slices_are_errors_with_a_list(name, words):
  with pytest.raises(ValueError, match=words):
    topology.devices(name)


@pytest.mark.parametrize('version', topology.SLICES)
def test_every_preset_has_a_mesh_on_every_slice(version):
  pytest.importorskip('libtpu')
  sections = [{'preset': name} for name in mesh_lib.PRESETS]
  for number in topology.SLICES[version]:
    devices = topology.devices(f'{version}-{number}')
    cores = hardware.find(devices[0].device_kind).cores
    assert cores == devices[0].num_cores and cores * len(devices) == number
    example = [{'fsdp': 8, 'tensor': 2}] if len(devices) >= 16 else []
    for section in sections + example:
      config = mesh_lib.MeshConfig(**section)
      built = mesh_lib.build(config, devices)
      assert built.devices.shape == mesh_lib.resolve(config, len(devices))
      assert set(built.devices.flat) == set(devices)
