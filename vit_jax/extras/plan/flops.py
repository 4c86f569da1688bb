"""Floating-point operations of a function, counted from its jaxpr.

Only matrix products and convolutions count, as in papers; a scanned body counts
once per trip, which the compiler's own estimate gets wrong. A multiply-add is
two operations.
"""

from collections.abc import Callable
import math
from typing import Any

import jax
from jax.extend import core


def count(function: Callable, *args: Any) -> int:
  """Returns the operations of `function(*args)`; args may be shapes."""
  return _count_jaxpr(jax.make_jaxpr(function)(*args).jaxpr)


def _count_jaxpr(jaxpr: Any) -> int:
  return sum(_count_equation(equation) for equation in jaxpr.eqns)


def _count_equation(equation: Any) -> int:
  name = equation.primitive.name
  if name == 'dot_general':
    (contracted, _), _ = equation.params['dimension_numbers']
    left = equation.invars[0].aval
    length = math.prod(left.shape[axis] for axis in contracted)
    return 2 * length * math.prod(equation.outvars[0].aval.shape)
  if name == 'conv_general_dilated':
    kernel = equation.invars[1].aval
    spec = equation.params['dimension_numbers'].rhs_spec
    per_output = math.prod(kernel.shape) // kernel.shape[spec[0]]
    return 2 * per_output * math.prod(equation.outvars[0].aval.shape)
  inner = [_count_jaxpr(getattr(value, 'jaxpr', value))
           for value in jax.tree.leaves(
               list(equation.params.values()), is_leaf=_is_jaxpr)
           if _is_jaxpr(value)]
  if name == 'scan':
    return equation.params['length'] * sum(inner)
  if name == 'cond':
    return max(inner)
  return sum(inner)


def _is_jaxpr(value: Any) -> bool:
  return isinstance(value, (core.Jaxpr, core.ClosedJaxpr))
