"""Walks over the equations of jaxprs."""

import jax


def equations(jaxpr, times=1):
  """Yields all equations of a jaxpr, each with its number of executions."""
  for equation in jaxpr.eqns:
    yield equation, times
    inner = times * (equation.params['length']
                     if equation.primitive.name == 'scan' else 1)
    for value in jax.tree.leaves(
        list(equation.params.values()),
        is_leaf=lambda v: hasattr(v, 'eqns') or hasattr(v, 'jaxpr')):
      value = getattr(value, 'jaxpr', value)
      if hasattr(value, 'eqns'):
        yield from equations(value, inner)
