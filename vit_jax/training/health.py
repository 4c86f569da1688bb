"""Detects the first loss or gradient that is not finite."""

from typing import Any

import clu.metrics
import flax.struct
import jax
import jax.numpy as jnp

from vit_jax import tree
from vit_jax import types
from vit_jax.exceptions import UserError


@flax.struct.dataclass
class NonFinite(clu.metrics.Metric):
  """The first step with a loss or gradient that is not finite.

  Accumulated on the devices with the other metrics.

  Attributes:
    step: the step, from 1, or 0 for none.
    loss: whether its loss was not finite.
    gradients: [parameters], whether each gradient was not finite.
  """
  step: Any  # Not jax.Array: a state may also hold shapes or shardings.
  loss: Any
  gradients: Any

  @classmethod
  def none(cls, params: types.Params) -> 'NonFinite':
    """Returns the value for no such step."""
    return cls(step=jnp.zeros((), jnp.int32), loss=jnp.zeros((), bool),
               gradients=jnp.zeros(len(jax.tree.leaves(params)), bool))

  @classmethod
  def check(
      cls, loss: jax.Array, grads: types.Params, *, step: jax.Array,
  ) -> 'NonFinite':
    """Checks one step; `step` counts from 1."""
    # jnp.vdot would flatten, and so gather, sharded gradients.
    gradients = jnp.stack([~jnp.isfinite(jnp.square(g).sum()) for g in
                           jax.tree.leaves(grads)])
    loss = ~jnp.isfinite(loss)
    bad = loss | gradients.any()
    return cls(step=jnp.where(bad, step, 0), loss=loss, gradients=gradients)

  def merge(self, other: 'NonFinite') -> 'NonFinite':
    """Returns the earlier of the two."""
    return jax.tree.map(
        lambda mine, theirs: jnp.where(self.step > 0, mine, theirs),
        self, other)


class NonFiniteError(UserError):
  """A loss or gradient is not finite."""


def assert_finite(found: NonFinite, params: types.Params) -> None:
  """Raises `NonFiniteError` if a loss or gradient was not finite.

  It names the step and the first affected parameters.
  """
  found = jax.device_get(found)
  if not found.step:
    return
  bad = [name for name, is_bad in zip(tree.flatten(params), found.gradients)
         if is_bad]
  shown = ', '.join(bad[:8]) + f' and {len(bad) - 8} more' * (len(bad) > 8)
  raise NonFiniteError(
      f'Step {int(found.step)}: the loss is '
      + ('not finite' if found.loss else 'finite')
      + f'; gradients not finite for {len(bad)} of {len(found.gradients)} '
      f'parameters: {shown or "none"}. Earlier checkpoints are intact. Lower '
      'the learning rate, clip gradients (optimizer.clip_norm), lengthen the '
      'warm-up, or compute in float32 (model.dtype).')
