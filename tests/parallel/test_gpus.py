"""GPUs that are not here; what the compiler says of them where it is here."""

import pytest

from vit_jax.parallel import gpus
from vit_jax.parallel import hardware
from vit_jax.parallel import topology


@pytest.mark.parametrize(('name', 'expected'), [
    ('h100:8', ('h100', 8)), ('H200:1', ('h200', 1)),
    ('a100-80GB:4', ('a100-80gb', 4)), ('v3-8', None), ('v3:2x2', None)])
def test_gpus_are_named_with_their_number(name, expected):
  assert gpus.parse(name) == expected


@pytest.mark.parametrize('name', ['h100', 'h100:0', 'h100:9', 'h100:4x8'])
def test_a_number_that_no_machine_has_is_an_error(name):
  with pytest.raises(ValueError, match=f"h100:1 to h100:8.*{name}'"):
    topology.check(name)


def test_what_is_neither_slice_nor_gpu_is_told_both():
  with pytest.raises(ValueError, match='Slices: v2-{8,.*GPUs: a100, a100-80gb'):
    topology.check('b300:8')


@pytest.mark.parametrize('name', gpus.CHIPS)
def test_every_chip_has_a_row_whose_kind_is_found(name):
  row = hardware.named(name)
  assert hardware.find(row.kinds[0]) is row
  assert row.kinds[0] in gpus.describe(row, gpus.CHIPS[name], (12, 9))


@pytest.mark.skipif(bool(gpus.plugin()), reason='the plugin is here')
def test_a_missing_plugin_is_told_with_the_line_that_installs_it():
  with pytest.raises(ValueError, match='pip install -r requirements-gpu.txt$'):
    topology.devices('h100:8')


@pytest.mark.skipif(not gpus.plugin(), reason="JAX's CUDA plugin is not here")
@pytest.mark.parametrize('name', ['a100-80gb:8', 'h200:2'])
def test_gpus_that_are_not_here_are_of_their_kind(name):
  devices = topology.devices(name)
  gpu, count = gpus.parse(name)
  assert [d.platform for d in devices] == ['gpu'] * count
  assert hardware.find(devices[0].device_kind) is hardware.named(gpu)
