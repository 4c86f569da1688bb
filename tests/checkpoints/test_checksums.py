"""Checksums find every changed bit."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from vit_jax.checkpoints import checksums


@pytest.mark.parametrize('dtype', [
    np.float32, jnp.bfloat16, np.int32, np.uint8, np.bool_])
def test_any_flipped_bit_changes_the_checksum(dtype):
  array = np.random.default_rng(0).integers(0, 2, (3, 5)).astype(dtype)
  bits = 1 if dtype == np.bool_ else 8
  sums = {int(checksums.of_array(array))}
  for byte in range(array.nbytes):
    for bit in range(bits):
      changed = array.copy()
      changed.view(np.uint8).reshape(-1)[byte] ^= 1 << bit
      sums.add(int(checksums.of_array(changed)))
  assert len(sums) == array.nbytes * bits + 1


def test_exchanged_values_change_the_checksum():
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  assert checksums.of_array(array) != checksums.of_array(array[::-1].copy())


def test_the_checksum_does_not_depend_on_the_sharding():
  array = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
  expected = checksums.of_arrays({'a': array})
  mesh = jax.make_mesh((4, 2), ('x', 'y'))
  for spec in (P(), P('x'), P('x', 'y'), P(None, 'y')):
    sharded = jax.device_put(array, NamedSharding(mesh, spec))
    assert checksums.of_arrays({'a': sharded}) == expected


def test_many_sharded_arrays_are_summed():
  """Sums of all of them at once made XLA end the process with a timeout."""
  mesh = jax.make_mesh((2, 2, 2), ('x', 'y', 'z'))
  arrays = {f'{i}': jax.device_put(np.full((32, 64), i), NamedSharding(
      mesh, (P('x'), P('y', 'z'), P(None, 'z'))[i % 3])) for i in range(60)}
  for _ in range(10):
    assert len(set(checksums.of_arrays(arrays).values())) == 60


def test_json_checksums_do_not_depend_on_python_types():
  assert checksums.of_json({'a': (1, 2), 'b': {10: 0.1, 9: None}}) == (
      checksums.of_json({'b': {'9': None, '10': 0.1}, 'a': [1, 2]}))
  assert checksums.of_json({'a': 1}) != checksums.of_json({'a': 2})
