"""What is drawn for each image of a batch, also where devices have groups each.

A training step in parts computes the gradient of each device's images apart
(`jax.vmap`), to sum them over the devices once. Its dropout has to be that of
the whole batch even so: what is drawn must not depend on the devices.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PRNGKeyArray, Shaped


def for_images(
    draw: Callable[..., Any], key: PRNGKeyArray,
    images: Shaped[jax.Array, 'batch ...'], *args: Any,
) -> Any:
  """Returns `draw(key, batch, *args)`; of groups of a batch, as for the whole.

  Args:
    draw: returns arrays whose first axis is as long as it is told.
    key: random key.
    images: or anything that has a row for each; their number is what counts.
    *args: arrays.
  """
  @jax.custom_batching.custom_vmap
  def rows(images: jax.Array, key: PRNGKeyArray, *args: Any) -> Any:
    return draw(key, len(images), *args)

  @rows.def_vmap
  def _(
      groups: int, batched: list[Any], images: jax.Array, key: Any, *args: Any,
  ) -> tuple[Any, Any]:
    if any(batched[1:]):  # Models side by side, which draw for themselves.
      drawn = jax.vmap(
          lambda *xs: draw(xs[0], images.shape[batched[0]], *xs[1:]),
          in_axes=[0 if is_batched else None for is_batched in batched[1:]],
      )(key, *args)
    else:
      drawn = jax.tree.map(
          lambda x: x.reshape(groups, -1, *x.shape[1:]),
          draw(key, groups * images.shape[1], *args))
    return drawn, jax.tree.map(lambda _: True, drawn)

  return rows(jax.lax.stop_gradient(images), key, *args)
