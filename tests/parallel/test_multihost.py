"""Process flags, and the shards of a batch in each process."""

import jax
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import processes


def mesh(**sizes):
  return mesh_lib.build(mesh_lib.MeshConfig(**sizes))


def test_batch_is_sharded_over_data_and_fsdp():
  on = mesh(data=2, fsdp=2, tensor=2)
  rows = np.arange(8 * 3).reshape(8, 3)
  batch = multihost.shard_batch({'label': rows}, on)['label']
  np.testing.assert_array_equal(batch, rows)
  assert batch.sharding.spec == P(('data', 'fsdp'))
  assert {shard.data.shape for shard in batch.addressable_shards} == {(2, 3)}


@pytest.mark.parametrize(('sizes', 'process', 'shards'), [
    # Four processes with two devices each, in mesh order.
    ({}, slice(6, 8), ((3,), 4)),
    ({'fsdp': 2}, slice(2, 4), ((1,), 4)),
    # The axis `tensor` within one process, over two, and over all.
    ({'tensor': 4}, slice(2, 4), ((0,), 2)),
    ({'tensor': 4}, slice(4, 6), ((1,), 2)),
    ({'tensor': 8}, slice(6, 8), ((0,), 1)),
    # A TPU torus: the devices of a process are not neighbours in the mesh.
    ({}, slice(1, 8, 4), ((1, 5), 8)),
    ({}, slice(1, 3), ((1, 2), 8)),
    ({}, slice(0, 8), ((0,), 1)),
])
def test_a_process_reads_the_shards_of_its_devices(sizes, process, shards):
  on = mesh(**sizes)
  assert multihost.batch_shards(on, on.devices.flat[process]) == shards


def test_processes_are_started_by_flags_or_by_a_cluster(monkeypatch):
  calls = []
  monkeypatch.setattr(
      jax.distributed, 'initialize', lambda *flags, **_: calls.append(flags))
  for flags in ((None, None, None), ('a:1', 2, 1), (None, 1, None)):
    assert processes.start(*flags)  # These tests are one process.
  assert calls == [(None, None, None), ('a:1', 2, 1)]
