"""Attainable peak: the fastest large matrix product in the model's dtype.

No program reaches the peak of a data sheet. A large product of square matrices
is the practical limit of the machine in its present state.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from vit_jax.benchmarking import interleaved_timing

SIZES = (1024, 2048, 4096, 8192, 16384)
MAX_SECS = 0.05  # Products that take longer are not faster per FLOP.


class Matmul(NamedTuple):
  """Product of two square matrices of `size` rows on each device.

  `flops` are for all devices; `run` computes the product a number of times
  and waits; one product takes `secs`.
  """
  size: int
  flops: int
  run: interleaved_timing.Action
  secs: float


def fastest(mesh: jax.sharding.Mesh, dtype: str) -> Matmul:
  """Returns the product with the most FLOPs per second."""
  found: list[Matmul] = []
  for size in SIZES:
    found.append(_build(mesh, dtype, size))
    if found[-1].secs > MAX_SECS:
      break
  return max(found, key=lambda matmul: matmul.flops / matmul.secs)


def _build(mesh: jax.sharding.Mesh, dtype: str, size: int) -> Matmul:
  sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
  left, right = (
      jax.jit(lambda key: jax.random.normal(
          key, (mesh.size, size, size), jnp.dtype(dtype)),
              out_shardings=sharding)(key)
      for key in jax.random.split(jax.random.key(0)))
  multiply = jax.jit(jnp.matmul, out_shardings=sharding)

  def run(count: int) -> None:
    for _ in range(count):
      result = multiply(left, right)
    result.block_until_ready()

  run(1)  # Compiles.
  return Matmul(
      size, 2 * mesh.size * size**3, run, interleaved_timing.secs(run))
