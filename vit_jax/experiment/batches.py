"""A host's batches onto the devices: split over the mesh, and made numbers.

What training and evaluation share of the way from `data` to a model.
"""

from collections.abc import Callable, Generator, Mapping
import contextlib

import jax
import numpy as np

from vit_jax import data
from vit_jax import types
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost


def check_size(
    what: str, batch_size: int, mesh: jax.sharding.Mesh, parts: int,
) -> None:
  """Raises if a batch does not divide over the devices of a mesh.

  Args:
    what: name of the setting.
    batch_size: its value.
    mesh: the devices.
    parts: that each device takes one after the other.

  Raises:
    ValueError: with what would divide.
  """
  unit = mesh_lib.data_parallelism(mesh) * parts
  if batch_size % unit:
    raise ValueError(
        f'{what} {batch_size} does not divide over '
        f'{mesh_lib.data_parallelism(mesh)} devices'
        + (f' in {parts} parts' if parts > 1 else '')
        + f' (mesh {dict(mesh.shape)}). Use a multiple of {unit}.')


def sharded(
    local: Generator[Mapping[str, np.ndarray], None, None],
    mesh: jax.sharding.Mesh,
) -> Generator[types.Batch, None, None]:
  """Yields a process's batches as parts of global ones, on the devices."""
  # Closing one must close the other: there may be processes behind it.
  with contextlib.closing(local):
    for batch in local:
      yield multihost.shard_batch(batch, mesh)


def prepare(
    config: data.DataConfig, dataset: data.Dataset,
) -> Callable[..., dict[str, jax.Array]]:
  """Returns what makes numbers of a batch of bytes: `data.prepare`."""
  return data.prepare(
      config, num_classes=dataset.num_classes, multi_label=dataset.multi_label,
      targets=bool(dataset.targets))
