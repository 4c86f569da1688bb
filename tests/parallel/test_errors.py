"""Meshes, axes and flags that do not fit the devices or the model."""

from unittest import mock

from jax.experimental import mesh_utils
import pytest

from tests.parallel import test_mesh
from tests.parallel import test_sharding
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import processes
from vit_jax.parallel import sharding


def build(devices=None, **section):
  mesh_lib.build(mesh_lib.MeshConfig(**section), devices)


def build_impossible():
  with mock.patch.object(mesh_utils, 'create_device_mesh', side_effect=(
      NotImplementedError('no assignment of 8 to the axes'))):
    build(data=1, fsdp=8)


def shard(section, **sizes):
  sharding.param_specs(
      test_sharding.boxed(**section), test_sharding.mesh(**sizes))


@pytest.mark.parametrize(('call', 'message'), [
    (build_impossible, "'fsdp': 8, 'tensor': 1} is not possible on 8 x cpu: no "
     'assign.*Use sizes that divide'),
    (lambda: build(test_mesh.of_slices('tpu')),
     '2 x fake: the devices belong to 2 sl'),
    (lambda: build(fsdp=3), "The mesh {'data': -1, 'fsdp': 3, 'tensor': 1} does"
     ' not fill 8 devices. Make the product of the axes 8; one axis of -1 '),
    (lambda: build(data=2, fsdp=2), 'does not fill 8 devices. Make the product '
     'of the axes 8; one axis of -1 takes what the others leave.'),
    *((lambda section=section: build(**section),
       'positive, except that one may be -1') for section in (
           {'data': 0}, {'data': -1, 'fsdp': -1}, {'tensor': -2})),
    (lambda: build(preset='22b'), "mesh.preset '22b'. Did you mean '22B'"),
    (lambda: shard({}, tensor=8),
     r'encoder/layers/attention/out/kernel \(2, 4, 8, 32\): axis .heads. of 4 '
     "does not divide over mesh axis 'tensor' of 8. Use a divisor of 4 for "
     'mesh.tensor.'),
    (lambda: shard({'width': 36}, fsdp=8), 'axis .width. of 36 does not divide '
     "over mesh axis 'fsdp' of 8."),
    # An error of JAX.
    (lambda: processes.start(num_processes=2), r'defined\. Give .* N - 1;')])
def test_an_error_names_its_cause(call, message):
  with pytest.raises(ValueError, match=message):
    call()
