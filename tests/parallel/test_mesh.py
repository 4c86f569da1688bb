"""The mesh fills its devices, with axes from the config or a preset."""

import re
from unittest import mock

import jax
from jax.experimental import mesh_utils
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


def test_a_mesh_that_the_topology_does_not_allow_is_an_error(monkeypatch):
  def create(*_, **__):
    raise NotImplementedError('no assignment of 8 to the axes')

  monkeypatch.setattr(mesh_utils, 'create_device_mesh', create)
  with pytest.raises(ValueError, match=(
      r"'fsdp': 8, 'tensor': 1} is not possible on 8 x cpu: no assign.*"
      'Use sizes that divide')):
    mesh_lib.build(mesh_lib.MeshConfig(data=1, fsdp=8))


def of_slices(platform):
  return [mock.Mock(spec=jax.Device, platform=platform, device_kind='fake',
                    slice_index=index, id=index) for index in range(2)]


def test_only_tpus_must_be_in_one_slice():
  with pytest.raises(ValueError, match='2 x fake: the devices belong to 2 sl'):
    mesh_lib.build(mesh_lib.MeshConfig(), of_slices('tpu'))
  assert mesh_lib.build(mesh_lib.MeshConfig(), of_slices('gpu')).size == 2


@pytest.mark.parametrize('section', [
    {'fsdp': 3}, {'data': 2, 'fsdp': 2}])
def test_mesh_that_does_not_fill_the_devices_is_an_error(section):
  sizes = {'data': -1, 'fsdp': 1, 'tensor': 1} | section
  remedy = ('The product of the others, ' if -1 in sizes.values() else
            'Make the product of the axes 8, or set one axis to -1.')
  with pytest.raises(ValueError, match=re.escape(
      f'The mesh {sizes} does not fill 8 devices. {remedy}')):
    mesh_lib.build(mesh_lib.MeshConfig(**section))


@pytest.mark.parametrize(('section', 'words'), [
    *((section, 'positive, except that one may be -1') for section in (
        {'data': 0}, {'data': -1, 'fsdp': -1}, {'tensor': -2})),
    ({'preset': '22b'}, "mesh.preset '22b'. Did you mean '22B'")])
def test_impossible_axes_and_presets_are_errors(section, words):
  with pytest.raises(ValueError, match=words):
    mesh_lib.MeshConfig(**section)


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
