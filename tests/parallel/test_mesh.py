"""The mesh fills its devices, with axes from the config or a preset."""

from unittest import mock

import jax
import pytest

from vit_jax.parallel import mesh as mesh_lib


@pytest.mark.parametrize('sizes', [(8, 1, 1), (2, 2, 2), (1, 4, 2)])
def test_the_device_order_is_that_of_jax(sizes):
  built = mesh_lib.build(mesh_lib.MeshConfig(*sizes))
  assert built == jax.make_mesh(
      sizes, ('data', 'fsdp', 'tensor'),
      axis_types=(jax.sharding.AxisType.Auto,) * 3)
  assert set(built.axis_types) == {jax.sharding.AxisType.Auto}
  assert mesh_lib.data_parallelism(built) == sizes[0] * sizes[1]


def of_slices(platform):
  return [mock.Mock(spec=jax.Device, platform=platform, device_kind='fake',
                    slice_index=index, id=index) for index in range(2)]


def test_gpus_may_be_in_two_slices():
  assert mesh_lib.build(mesh_lib.MeshConfig(), of_slices('gpu')).size == 2


SIZES = {  # Parameters of each model, to three digits.
    'data': {'Ti': 5.72e6, 'S': 22.1e6, 'B': 86.6e6, 'R50+B': 98.7e6},
    'L': {'L': 304e6, 'R50+L': 330e6, 'R101x3': 382e6},
    'H': {'H': 632e6, 'R152x4': 928e6},
    'g': {'g': 1.01e9}, 'G': {'G': 1.84e9}, '22B': {'22B': 21.7e9}}


@pytest.mark.parametrize('name', list(mesh_lib.PRESETS))
def test_the_preset_follows_from_the_number_of_parameters(name):
  for num_params in SIZES[name].values():
    assert mesh_lib.preset(mesh_lib.MeshConfig(), int(num_params)) == name


@pytest.mark.parametrize('section, by_devices', [
    ({'preset': 'data'}, {1: (1, 1, 1), 6: (6, 1, 1)}),
    ({'preset': 'L'}, {1: (1, 1, 1), 6: (3, 2, 1), 64: (8, 8, 1)}),
    ({'preset': '22B'}, {1: (1, 1, 1), 64: (1, 64, 1), 128: (1, 64, 2),
                         2048: (4, 64, 8)}),
    # The axes of the config override the preset of 304 M parameters, L.
    *((section, {64: sizes}) for section, sizes in (
        ({'fsdp': 4}, (16, 4, 1)), ({'tensor': 4}, (2, 8, 4)),
        ({'tensor': 16}, (1, 4, 16)), ({'data': 2, 'fsdp': -1}, (2, 32, 1)),
        ({'data': 2, 'fsdp': 16, 'tensor': 2}, (2, 16, 2)),
        ({'data': 1, 'tensor': -1}, (1, 1, 64))))])
def test_presets_and_axes_fit_the_number_of_devices(section, by_devices):
  config = mesh_lib.MeshConfig(**section)
  for devices, sizes in by_devices.items():
    assert mesh_lib.resolve(config, devices, num_params=304_000_000) == sizes
