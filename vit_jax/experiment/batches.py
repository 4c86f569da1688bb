"""Moves host batches to the devices and preprocesses them there."""

from collections.abc import Callable, Generator, Mapping
import contextlib

import jax
import numpy as np

from vit_jax import data
from vit_jax import types
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost


def check_size(
    setting: str, batch_size: int, mesh: jax.sharding.Mesh, microbatches: int,
) -> None:
  """Raises if a batch does not divide over the devices of a mesh.

  Args:
    setting: config key of the batch size.
    batch_size: global.
    mesh: the devices.
    microbatches: number of microbatches per batch.
  """
  divisor = mesh_lib.data_parallelism(mesh) * microbatches
  if batch_size % divisor:
    raise ValueError(
        f'{setting} {batch_size} does not divide over '
        f'{mesh_lib.data_parallelism(mesh)} devices'
        + f' in {microbatches} microbatches' * (microbatches > 1)
        + f' (mesh {dict(mesh.shape)}). Use a multiple of {divisor}.')


def shard(
    local: Generator[Mapping[str, np.ndarray], None, None],
    mesh: jax.sharding.Mesh,
) -> Generator[types.Batch, None, None]:
  """Yields this process's batches as global batches on the devices."""
  # Closing this generator must close the other, which may own processes.
  with contextlib.closing(local):
    for batch in local:
      yield multihost.shard_batch(batch, mesh)


def prepare(
    config: data.DataConfig, dataset: data.Dataset,
) -> Callable[..., dict[str, jax.Array]]:
  """Returns the on-device preprocessing of a batch; see `data.prepare`."""
  return data.prepare(
      config, num_classes=dataset.num_classes, multi_label=dataset.multi_label,
      targets=bool(dataset.targets))
