"""How arrays lie on the mesh: one table of rules."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from vit_jax import tree
from vit_jax import types

# Axis of a parameter -> axis of the mesh. Names not listed are never split.
RULES: Mapping[str, str] = {
    'width': types.FSDP,
    'heads': types.TENSOR,
    'mlp': types.TENSOR,
}

# Images are split over both kinds of replicas.
BATCH = PartitionSpec((types.DATA, types.FSDP))


def param_specs(
    boxed_params: Any, mesh: jax.sharding.Mesh,
) -> dict[str, PartitionSpec]:
  """Returns a partition for each parameter, by path name.

  Args:
    boxed_params: parameters or shapes, boxed with the names of their axes.
    mesh: the mesh they will lie on.

  Raises:
    ValueError: if a dimension does not divide over its mesh axis.
  """
  names = tree.flatten(nn.get_partition_spec(boxed_params))
  shapes = tree.flatten(nn.unbox(boxed_params))
  specs = {}
  for path, leaf in shapes.items():
    axes = [RULES.get(name) for name in names[path]]
    for axis, size, name in zip(axes, leaf.shape, names[path]):
      if axis and size % mesh.shape[axis]:
        raise ValueError(
            f'{path} {tuple(leaf.shape)}: its axis {name!r} of {size} does not '
            f'divide over mesh axis {axis!r} of {mesh.shape[axis]}. Use a '
            f'divisor of {size} for mesh.{axis}.')
    specs[path] = PartitionSpec(*axes)
  return specs


def state_shardings(
    state: Any, specs: Mapping[str, PartitionSpec], mesh: jax.sharding.Mesh,
) -> Any:
  """Returns a sharding for each leaf of a state.

  A leaf that mirrors a parameter, such as Adam's first moment, has the
  parameter's path as the end of its own, and lies as the parameter does;
  everything else is replicated.

  Args:
    state: shapes of the whole state, with its parameters under 'params'.
    specs: from `param_specs`.
    mesh: the mesh.
  """
  shapes = {name: leaf.shape for name, leaf in
            tree.flatten(state.params).items()}

  def place(name: str, leaf: Any) -> NamedSharding:
    parts = name.split('/')
    tails = ('/'.join(parts[i:]) for i in range(len(parts)))
    param = next((t for t in tails if t in specs), None)
    mirrors = param is not None and shapes[param] == leaf.shape
    return NamedSharding(
        mesh, specs[param] if mirrors else PartitionSpec())  # type: ignore[index]

  return tree.map_with_name(place, state)
