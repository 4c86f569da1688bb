"""Matrix products of bfloat16 where a CPU has units for them.

On a CPU with matrix units (Intel's AMX) the library that XLA calls multiplies
bfloat16 there only if the result is float32, and both matrices lie in memory as
it likes them. Any other product of bfloat16 is computed in float32, four times
as slowly (docs/performance.md). So here every product, and both products of its
gradient, has that form, and is rounded after: the sums are float32 either way.
"""

from collections.abc import Sequence
import functools
import math
import pathlib
from typing import Any

import jax
from jax.experimental import layout
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Float

_CPU_INFO = pathlib.Path('/proc/cpuinfo')


@functools.cache
def has_matrix_units() -> bool:
  """Whether this machine's CPU multiplies bfloat16 matrices; Linux says so."""
  try:
    return 'amx_bf16' in _CPU_INFO.read_text().split()
  except OSError:
    return False


def dot_general(
    lhs: Float[Array, '...'], rhs: Float[Array, '...'],
    dimension_numbers: tuple[
        tuple[Sequence[int], Sequence[int]],
        tuple[Sequence[int], Sequence[int]]],
    precision: Any = None, preferred_element_type: Any = None,
) -> Float[Array, '...']:
  """`jax.lax.dot_general`, of two bfloat16 arrays in the form that is fast.

  Args:
    lhs: any array.
    rhs: any array.
    dimension_numbers: axes that are summed over, of each; batch axes, of each.
    precision: of products that are not of bfloat16.
    preferred_element_type: of the result; bfloat16 if not given.
  """
  if not lhs.dtype == rhs.dtype == jnp.bfloat16:
    return jax.lax.dot_general(
        lhs, rhs, dimension_numbers, precision, preferred_element_type)
  (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = dimension_numbers
  rows = _others(lhs, lhs_sum, lhs_batch)
  columns = _others(rhs, rhs_sum, rhs_batch)
  batch = [lhs.shape[axis] for axis in lhs_batch]
  length = math.prod(lhs.shape[axis] for axis in lhs_sum)
  product = _matmul(
      lhs.transpose(*lhs_batch, *rows, *lhs_sum).reshape(*batch, -1, length),
      rhs.transpose(*rhs_batch, *rhs_sum, *columns).reshape(
          *batch, length, -1),
      jnp.dtype(preferred_element_type or jnp.bfloat16))
  return product.reshape(
      *batch, *(lhs.shape[axis] for axis in rows),
      *(rhs.shape[axis] for axis in columns))


def _others(array: jax.Array, *taken: Sequence[int]) -> list[int]:
  return [axis for axis in range(array.ndim)
          if not any(axis in axes for axes in taken)]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _matmul(
    lhs: BFloat16[Array, '*batch rows length'],
    rhs: BFloat16[Array, '*batch length columns'], dtype: jnp.dtype,
) -> Float[Array, '*batch rows columns']:
  return _sum_over(lhs, rhs, -2).astype(dtype)


def _forward(lhs: jax.Array, rhs: jax.Array, dtype: jnp.dtype) -> Any:
  return _matmul(lhs, rhs, dtype), (lhs, rhs)


def _backward(_: jnp.dtype, saved: Any, cotangent: jax.Array) -> Any:
  lhs, rhs = saved
  cotangent = cotangent.astype(jnp.bfloat16)
  # A copy in the order of the axes, or XLA would read `lhs` where it lies. Of
  # several devices' images, all are gathered for it.
  transposed = jnp.swapaxes(lhs, -1, -2)
  transposed = layout.with_layout_constraint(
      transposed, layout.Layout(tuple(range(transposed.ndim))))
  return (_sum_over(cotangent, rhs, -1).astype(lhs.dtype),
          _sum_over(transposed, cotangent, -2).astype(rhs.dtype))


_matmul.defvjp(_forward, _backward)


def _sum_over(
    lhs: jax.Array, rhs: jax.Array, rhs_axis: int,
) -> Float[Array, '...']:
  """Product of matrices, or of stacks of them, in float32.

  Over the last axis of `lhs`, and the last (-1) or the one before of `rhs`.
  """
  batch = tuple(range(lhs.ndim - 2))
  axes = ((lhs.ndim - 1,), (rhs.ndim + rhs_axis,))
  return jax.lax.dot_general(
      lhs, rhs, (axes, (batch, batch)), preferred_element_type=jnp.float32)
