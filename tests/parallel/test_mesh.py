"""The mesh of devices."""

import re

import jax
import pytest

from vit_jax.parallel import mesh


@pytest.mark.parametrize('section, sizes, replicas', [
    ({}, (8, 1, 1), 8),
    ({'data': 2, 'fsdp': 2, 'tensor': 2}, (2, 2, 2), 4),
    ({'data': 2, 'fsdp': -1}, (2, 4, 1), 8),
    ({'data': 1, 'tensor': -1}, (1, 1, 8), 1),
])
def test_axes_fill_the_devices(section, sizes, replicas):
  built = mesh.build(mesh.parse(section))
  assert dict(built.shape) == dict(zip(('data', 'fsdp', 'tensor'), sizes))
  assert set(built.devices.flat) == set(jax.devices())
  assert mesh.data_parallelism(built) == replicas


def test_devices_may_be_given():
  built = mesh.build(mesh.MeshConfig(), jax.devices()[:1])
  assert built.size == 1
  assert list(built.devices.flat) == jax.devices()[:1]


@pytest.mark.parametrize('section', [
    {'data': 3}, {'data': 16}, {'fsdp': 3}, {'data': 2, 'fsdp': 2},
    {'fsdp': 16}])
def test_mesh_that_does_not_fill_the_devices_is_an_error(section):
  sizes = {'data': -1, 'fsdp': 1, 'tensor': 1} | section
  with pytest.raises(ValueError, match=re.escape(
      f'The mesh {sizes} does not fill 8 devices. Make the product of the axes '
      '8, or set one axis to -1.')):
    mesh.build(mesh.parse(section))


@pytest.mark.parametrize('section', [
    {'data': 0}, {'data': -1, 'fsdp': -1}, {'tensor': -2}])
def test_impossible_axes_are_an_error(section):
  with pytest.raises(ValueError, match='positive, and at most one of them -1'):
    mesh.parse(section)
