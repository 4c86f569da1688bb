"""What the devices do at best: a large matrix product, in the model's dtype.

A data sheet's peak is reached by nothing. The product of two square matrices,
large enough to hide all else, is the most that a program may hope for on the
machine as it is: its clock, its cooling, and what else runs on it.
"""

from collections.abc import Callable
import dataclasses
import time

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

# Larger ones take long where this takes `LONG_SECS`, and are hardly faster.
SIZES = (1024, 2048, 4096, 8192, 16384)
LONG_SECS = 0.05


@dataclasses.dataclass(frozen=True)
class Product:
  """Square matrices, a pair on each device.

  Attributes:
    size: rows of a matrix.
    flops: of a product, of all devices together.
    run: computes so many products, and waits for the last.
  """
  size: int
  flops: int
  run: Callable[[int], None]


def build(mesh: jax.sharding.Mesh, dtype: str, size: int) -> Product:
  """Returns the product of matrices of one size."""
  on_each = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
  left, right = (
      jax.jit(lambda key: jax.random.normal(
          key, (mesh.size, size, size), jnp.dtype(dtype)),
              out_shardings=on_each)(key)
      for key in jax.random.split(jax.random.key(0)))
  multiply = jax.jit(jnp.matmul, out_shardings=on_each)

  def run(count: int) -> None:
    for _ in range(count):
      result = multiply(left, right)
    result.block_until_ready()

  run(1)  # Compiles.
  return Product(size, 2 * mesh.size * size**3, run)


def fastest(mesh: jax.sharding.Mesh, dtype: str) -> Product:
  """Returns the product of the size with the most operations a second."""
  best, best_rate = None, 0.0
  for size in SIZES:
    product = build(mesh, dtype, size)
    start = time.perf_counter()
    product.run(1)
    secs = time.perf_counter() - start
    if product.flops / secs > best_rate:
      best, best_rate = product, product.flops / secs
    if secs > LONG_SECS:
      break
  assert best is not None
  return best
