"""Per-example random values, independent of the number of devices.

With gradient accumulation, a training step computes the gradient of each
device's images separately (`jax.vmap` over groups) to sum them over devices
once. Dropout must still be that of the whole batch, so random values must not
depend on the grouping.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PRNGKeyArray, Shaped


def sample(
    function: Callable[..., Any], key: PRNGKeyArray,
    images: Shaped[jax.Array, 'batch ...'], *args: Any,
) -> Any:
  """Returns `function(key, batch_size, *args)`.

  Under `jax.vmap` over groups of a batch, returns each group's part of the
  values that the whole batch would get.

  Args:
    function: returns arrays [batch_size, ...].
    key: random key.
    images: any array with one row per example; only its length is used.
    *args: arrays.
  """
  @jax.custom_batching.custom_vmap
  def rows(images: jax.Array, key: PRNGKeyArray, *args: Any) -> Any:
    return function(key, len(images), *args)

  @rows.def_vmap
  def _(
      groups: int, batched: list[Any], images: jax.Array, key: Any, *args: Any,
  ) -> tuple[Any, Any]:
    if any(batched[1:]):  # A vmap over models, each with its own key.
      values = jax.vmap(
          lambda *xs: function(xs[0], images.shape[batched[0]], *xs[1:]),
          in_axes=[0 if is_batched else None for is_batched in batched[1:]],
      )(key, *args)
    else:
      values = jax.tree.map(
          lambda x: x.reshape(groups, -1, *x.shape[1:]),
          function(key, groups * images.shape[1], *args))
    return values, jax.tree.map(lambda _: True, values)

  return rows(jax.lax.stop_gradient(images), key, *args)
