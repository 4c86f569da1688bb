"""Checksums find every changed bit; configs of earlier versions can be read."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import saved_config


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


def test_json_checksums_do_not_depend_on_python_types():
  assert checksums.of_json({'a': (1, 2), 'b': {10: 0.1, 9: None}}) == (
      checksums.of_json({'b': {'9': None, '10': 0.1}, 'a': [1, 2]}))
  assert checksums.of_json({'a': 1}) != checksums.of_json({'a': 2})


def test_a_difference_names_the_array():
  with pytest.raises(ValueError, match='params differs in 1 of 2 .* bias'):
    checksums.check('params', {'bias': 1, 'x': 2}, {'bias': 3, 'x': 2})


def test_removed_keys_are_dropped_and_others_kept():
  saved = {'model': {'products': 'auto', 'depth': 4},
           'data': {'decoder': 'auto', 'shapes': {'size': 16, 'seed': 1}},
           'batch_size': 8}
  assert saved_config.upgrade(saved) == {
      'model': {'depth': 4}, 'batch_size': 8,
      # Earlier versions held out images regardless of their class.
      'data': {'shapes': {'seed': 1}, 'holdout': 'hash'}}


@pytest.mark.parametrize('source', ['shapes', '/data/train-*.parquet'])
def test_an_earlier_run_on_data_that_changed_is_not_resumed(source):
  data = {'source': source, 'decoder': 'auto'}
  with pytest.raises(ValueError, match=r'version 0\.1\.0'):
    saved_config.check_resumable({'data': data})
  saved_config.check_resumable({'data': {**data, 'source': 'digits'}})
  saved_config.check_resumable({'data': {'source': source}})
