"""Exact nearest neighbours by cosine, and weighted votes on their labels."""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

# Rows of one matrix product: 32 MiB of cosines at a time.
QUERY_ROWS, BANK_ROWS = 1024, 8192


def nearest(
    queries: Float[np.ndarray, 'queries width'],
    bank: Float[np.ndarray, 'bank width'], *, k: int,
    after_block: Callable[[], None] = lambda: None,
) -> tuple[Float[np.ndarray, 'queries k'], Int[np.ndarray, 'queries k']]:
  """Returns cosines and bank rows of the k nearest, the nearest first.

  Ties go to the first row of the bank. The full cosine matrix is never stored.

  Args:
    queries: features; they need not have unit length.
    bank: features to search, at least k rows.
    k: neighbours per query.
    after_block: called after each block of the bank.
  """
  blocks = [jnp.asarray(unit(queries[i:i + QUERY_ROWS]))
            for i in range(0, len(queries), QUERY_ROWS)]
  best = [(jnp.full((len(block), k), -jnp.inf), jnp.full((len(block), k), -1))
          for block in blocks]
  for start in range(0, len(bank), BANK_ROWS):
    rows = jnp.asarray(unit(bank[start:start + BANK_ROWS]))
    best = [_merge(block, rows, start, *found, k=k)
            for block, found in zip(blocks, best)]
    # Otherwise the host runs ahead and moves the whole bank to the device.
    jax.block_until_ready(best)
    after_block()
  cosines, found = zip(*jax.device_get(best))
  return np.concatenate(cosines), np.concatenate(found)


def vote(
    labels: Int[np.ndarray, 'queries k'],
    weights: Float[np.ndarray, 'queries k'], *, num_classes: int,
) -> Float[np.ndarray, 'queries classes']:
  """Returns the sum of the neighbours' weights for each class."""
  votes = np.zeros((len(labels), num_classes))
  np.add.at(votes, (np.arange(len(labels))[:, None], labels), weights)
  return votes


def unit(
    rows: Float[np.ndarray, '*rows width'],
) -> Float[np.ndarray, '*rows width']:
  """Returns rows scaled to unit length; zeros stay zeros."""
  norms = np.linalg.norm(rows, axis=-1, keepdims=True)
  return rows / np.maximum(norms, 1e-12)


@functools.partial(jax.jit, static_argnames='k')
def _merge(
    queries: Float[Array, 'queries width'], bank: Float[Array, 'bank width'],
    start: int | Int[Array, ''],
    best: Float[Array, 'queries k'], best_rows: Int[Array, 'queries k'], *,
    k: int,
) -> tuple[Float[Array, 'queries k'], Int[Array, 'queries k']]:
  # In full float32: a TPU's default of bfloat16 would reorder neighbours.
  cosines = jnp.matmul(queries, bank.T, precision='highest')
  cosines = jnp.concatenate([best, cosines], axis=1)
  rows = jnp.broadcast_to(
      start + jnp.arange(len(bank)), (len(queries), len(bank)))
  rows = jnp.concatenate([best_rows, rows], axis=1)
  top, columns = jax.lax.top_k(cosines, k)
  return top, jnp.take_along_axis(rows, columns, axis=1)
