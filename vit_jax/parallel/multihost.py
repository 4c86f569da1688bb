"""Arrays that are spread over several processes."""

from collections.abc import Generator, Iterable, Mapping
import contextlib
import functools
import itertools
from typing import Any

import jax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from vit_jax import types
from vit_jax.parallel import coordination
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding


def batch_shards(
    mesh: jax.sharding.Mesh, devices: Iterable[jax.Device] | None = None,
) -> tuple[tuple[int, ...], int]:
  """Returns sorted indices of the batch shards on devices, and their total.

  If the axis `tensor` spans processes, several of them hold the same shard.
  Contiguous shards are joined where possible.

  Args:
    mesh: the mesh.
    devices: devices of the mesh; by default this process's devices.
  """
  total = mesh_lib.data_parallelism(mesh)
  if devices is None:
    devices = [d for d in mesh.devices.flat
               if d.process_index == jax.process_index()]
  rows = NamedSharding(mesh, sharding.BATCH).devices_indices_map((total,))
  shards = sorted({rows[device][0].indices(total)[0] for device in devices})
  first, count = shards[0], len(shards)
  if (total % count == first % count == 0
      and shards == list(range(first, first + count))):
    return (first // count,), total // count
  return tuple(shards), total


def shard_batch(
    batch: Mapping[str, np.ndarray], mesh: jax.sharding.Mesh,
) -> types.Batch:
  """Returns a global batch from the rows of this process's shards, in order."""
  on_batch = NamedSharding(mesh, sharding.BATCH)
  if jax.process_count() == 1:
    return jax.device_put(dict(batch), on_batch)
  shards, total = batch_shards(mesh)
  return {key: jax.make_array_from_process_local_data(
      on_batch, rows, (len(rows) // len(shards) * total, *rows.shape[1:]))
          for key, rows in batch.items()}


def shard_batches(
    local: Generator[Mapping[str, np.ndarray], None, None],
    mesh: jax.sharding.Mesh,
) -> Generator[types.Batch, None, None]:
  """Yields this process's batches as global batches; see `shard_batch`."""
  # Closing this generator must close the other, which may own processes.
  with contextlib.closing(local):
    for batch in local:
      yield shard_batch(batch, mesh)


def fetch(arrays: Any) -> Any:
  """Returns global arrays as complete NumPy arrays in every process."""
  def gather(array: Any) -> np.ndarray:
    if (not isinstance(array, jax.Array) or array.is_fully_addressable
        or array.is_fully_replicated):
      return jax.device_get(array)
    return multihost_utils.process_allgather(array, tiled=True)

  if jax.process_count() == 1:
    return jax.device_get(arrays)
  return jax.tree.map(gather, arrays)


def sum_counts(count: int, rows: int, *, total: int) -> int:
  """Sums a count of rows over all processes.

  Rows held by several processes are counted by each of them, so the sum is
  scaled to the number of different rows.

  Args:
    count: count of this process.
    rows: number of rows of this process.
    total: number of different rows of all processes.
  """
  if jax.process_count() == 1:
    return count
  counts, all_rows = multihost_utils.process_allgather(
      np.array([count, rows])).sum(0).tolist()
  return round(counts * total / all_rows) if all_rows else 0


def put(arrays: Any, shardings: Any) -> Any:
  """Shards arrays that every process holds completely.

  Unlike `jax.device_put`, does not compare them between processes first.
  """
  if jax.process_count() == 1:
    return jax.device_put(arrays, shardings)

  def put_one(array: Any, on: jax.sharding.Sharding) -> jax.Array:
    array = np.asarray(array)
    return jax.make_array_from_callback(
        array.shape, on, lambda index: array[index])

  return jax.tree.map(put_one, arrays, shardings)


def connect_cpus(mesh: jax.sharding.Mesh) -> None:
  """Opens the connections between CPUs of several processes.

  Otherwise the first step opens them, and gloo fails if one process compiles it
  half a minute longer than another.

  Raises:
    coordination.LostError: if a process is missing.
  """
  if (not coordination.is_distributed()
      or mesh.devices.flat[0].platform != 'cpu'):
    return
  coordination.barrier('connect')
  axes = [axis for axis, size in mesh.shape.items() if size > 1]
  spread = NamedSharding(mesh, PartitionSpec(tuple(mesh.axis_names)))
  ones = jax.make_array_from_callback(
      (mesh.size,), spread, lambda index: np.ones(mesh.size)[index])
  for count in range(1, len(axes) + 1):
    for group in itertools.combinations(axes, count):
      total = jax.shard_map(
          functools.partial(jax.lax.psum, axis_name=group), mesh=mesh,
          in_specs=spread.spec, out_specs=PartitionSpec(tuple(
              axis for axis in mesh.axis_names if axis not in group)))
      jax.block_until_ready(jax.jit(total)(ones))
