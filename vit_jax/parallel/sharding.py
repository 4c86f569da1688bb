"""Sharding of parameters, state and batches, from one table of rules."""

from collections.abc import Callable, Collection, Mapping
import functools
import math
from typing import Any, ParamSpec, TypeVar

import flax.linen as nn
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from vit_jax import tree
from vit_jax import types
from vit_jax.exceptions import UserError

P = ParamSpec('P')
T = TypeVar('T')

# Parameter axis -> mesh axis. Other axes are replicated.
RULES: Mapping[str, str] = {
    'width': types.FSDP,
    'heads': types.TENSOR,
    'mlp': types.TENSOR,
}

# Images are sharded over both data-parallel axes.
BATCH = PartitionSpec((types.DATA, types.FSDP))

# Names of a parameter's axes, from its model.
Axes = tuple[str | None, ...]


def axis_names(boxed_params: Any) -> dict[str, Axes]:
  """Returns axis names by parameter path, from boxed parameters or shapes."""
  return {path: tuple(names) for path, names in tree.flatten(
      nn.get_partition_spec(boxed_params)).items()}


def param_specs(
    boxed_params: Any, mesh: jax.sharding.Mesh,
) -> dict[str, PartitionSpec]:
  """Returns partition specs by path, from boxed parameters or shapes.

  Raises:
    UserError: if a dimension does not divide over its mesh axis.
  """
  names = axis_names(boxed_params)
  shapes = tree.flatten(nn.unbox(boxed_params))
  specs = {}
  for path, leaf in shapes.items():
    axes = [RULES.get(name or '') for name in names[path]]
    for axis, size, name in zip(axes, leaf.shape, names[path]):
      if axis and size % mesh.shape[axis]:
        raise UserError(
            f'{path} {tuple(leaf.shape)}: axis {name!r} of {size} does not '
            f'divide over mesh axis {axis!r} of {mesh.shape[axis]}. Use a '
            f'divisor of {size} for mesh.{axis}.')
    specs[path] = PartitionSpec(*axes)
  return specs


def state_shardings(
    state: Any, specs: Mapping[str, PartitionSpec], mesh: jax.sharding.Mesh,
) -> Any:
  """Returns a sharding for each leaf of a state.

  A leaf such as Adam's first moment, whose path ends with the path of a
  parameter and which has its shape, is sharded like the parameter. All other
  leaves are replicated. `specs` is the result of `param_specs`.
  """
  shapes = {name: leaf.shape for name, leaf in
            tree.flatten(state.params).items()}

  def place(name: str, leaf: Any) -> NamedSharding:
    param = _parameter_of(name, specs)
    mirrors = param is not None and shapes[param] == leaf.shape
    return NamedSharding(
        mesh, specs[param] if mirrors else PartitionSpec())  # type: ignore[index]

  return tree.map_with_name(place, state)


def _parameter_of(name: str, params: Collection[str]) -> str | None:
  """Returns the parameter whose path is a suffix of a leaf's path, or None."""
  parts = name.split('/')
  tails = ('/'.join(parts[i:]) for i in range(len(parts)))
  return next((tail for tail in tails if tail in params), None)


def device_bytes(shapes: Any) -> int:
  """Returns the bytes per device of arrays or sharded shapes."""
  return sum(
      math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
      for leaf in jax.tree.leaves(shapes))


def keep_batch_split(
    function: Callable[P, T], mesh: jax.sharding.Mesh,
) -> Callable[P, T]:
  """Returns `function` with activations sharded along the batch.

  When parameters are sharded over `fsdp` along their width, the compiler may
  shard activations the same way, so that every device works on every image.
  Constraints on the inputs and outputs of each module prevent that: parameters
  are gathered layer by layer instead. Modules with `per_device`, kernels that
  the compiler cannot partition, are called with the images and heads of each
  device.

  Args:
    function: applies linen modules whose first argument and first result have
      the batch as their first axis.
    mesh: the mesh.
  """
  replicas = mesh.shape[types.DATA] * mesh.shape[types.FSDP]

  def keep(value: Any) -> Any:
    if isinstance(value, tuple):
      return (keep(value[0]), *value[1:])
    if not isinstance(value, jax.Array) or value.ndim < 2 or (
        value.shape[0] % replicas):
      return value
    others = [PartitionSpec.UNCONSTRAINED] * (value.ndim - 1)
    return jax.lax.with_sharding_constraint(
        value, NamedSharding(mesh, PartitionSpec(*BATCH, *others)))

  def intercept(
      method: Callable[..., Any], args: tuple[Any, ...],
      kwargs: dict[str, Any], context: nn.module.InterceptorContext,
  ) -> Any:
    if context.method_name != '__call__' or not args:
      return method(*args, **kwargs)
    if getattr(context.module, 'per_device', False):
      heads = [array.shape[2] for array in args]
      spec = PartitionSpec(
          *((None,) if len(args[0]) % replicas else BATCH), None,
          None if math.gcd(*heads) % mesh.shape[types.TENSOR] else
          types.TENSOR)
      return jax.shard_map(
          method, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False,
      )(*args)
    return keep(method(keep(args[0]), *args[1:], **kwargs))

  @functools.wraps(function)
  def split(*args: P.args, **kwargs: P.kwargs) -> T:
    with nn.intercept_methods(intercept):
      return function(*args, **kwargs)

  return split
