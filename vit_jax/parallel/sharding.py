"""How arrays lie on the mesh: one table of rules."""

from collections.abc import Callable, Collection, Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any, ParamSpec, TypeVar

import flax.linen as nn
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from vit_jax import tree
from vit_jax import types

P = ParamSpec('P')
T = TypeVar('T')

# Axis of a parameter -> axis of the mesh. Names not listed are never split.
RULES: Mapping[str, str] = {
    'width': types.FSDP,
    'heads': types.TENSOR,
    'mlp': types.TENSOR,
}

# Images are split over both kinds of replicas.
BATCH = PartitionSpec((types.DATA, types.FSDP))


# Names of a parameter's axes, as its model gives them.
Axes = tuple[str | None, ...]


def axis_names(boxed_params: Any) -> dict[str, Axes]:
  """Returns the names of each parameter's axes, by path name.

  Args:
    boxed_params: parameters or shapes, boxed with the names of their axes.
  """
  return {path: tuple(names) for path, names in tree.flatten(
      nn.get_partition_spec(boxed_params)).items()}


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
  names = axis_names(boxed_params)
  shapes = tree.flatten(nn.unbox(boxed_params))
  specs = {}
  for path, leaf in shapes.items():
    axes = [RULES.get(name or '') for name in names[path]]
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
    param = _parameter_of(name, specs)
    mirrors = param is not None and shapes[param] == leaf.shape
    return NamedSharding(
        mesh, specs[param] if mirrors else PartitionSpec())  # type: ignore[index]

  return tree.map_with_name(place, state)


def _parameter_of(name: str, params: Collection[str]) -> str | None:
  """Returns the parameter whose path is the end of a leaf's, or None."""
  parts = name.split('/')
  tails = ('/'.join(parts[i:]) for i in range(len(parts)))
  return next((tail for tail in tails if tail in params), None)


def device_bytes(shapes: Any) -> int:
  """Returns the bytes per device of arrays or sharded shapes."""
  return sum(
      math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
      for leaf in jax.tree.leaves(shapes))


@dataclasses.dataclass(frozen=True)
class Row:
  """How a parameter lies on the mesh.

  Attributes:
    name: path of the parameter.
    shape: whole.
    axes: their names.
    spec: the mesh axis that each is split over.
    param_bytes: of the parameter on one device.
    state_bytes: on one device, of what is kept beside it: the optimizer's state
      and the average.
  """
  name: str
  shape: tuple[int, ...]
  axes: Axes
  spec: PartitionSpec
  param_bytes: int
  state_bytes: int


def table(
    state: types.TrainState, axes: Mapping[str, Axes],
    mesh: jax.sharding.Mesh,
) -> list[Row]:
  """Returns how each parameter of a state lies, in the tree's order.

    sharding.table(experiment.abstract_state, experiment.axes, experiment.mesh)

  What belongs to no parameter, such as the step, is on every device: scalars.

  Args:
    state: shapes and shardings of a whole state.
    axes: from `axis_names`.
    mesh: the mesh.
  """
  params = tree.flatten(state.params)
  beside = dict.fromkeys(params, 0)
  for name, leaf in tree.flatten((state.opt_state, state.average)).items():
    if param := _parameter_of(name, params):
      beside[param] += device_bytes(leaf)
  return [
      Row(name=name, shape=tuple(leaf.shape), axes=axes[name],
          spec=leaf.sharding.spec, param_bytes=device_bytes(leaf),
          state_bytes=beside[name])
      for name, leaf in params.items()]


def describe(
    rows: Sequence[Row], mesh: jax.sharding.Mesh,
) -> str:
  """Returns the rules, and below them `table` as text: what users read."""
  cells = [('parameter', 'shape', 'axes', 'split over', 'bytes a device',
            'and its state')]
  for row in rows:
    cells.append((
        row.name, ' x '.join(map(str, row.shape)),
        ' '.join(name or '-' for name in row.axes),
        ' '.join(axis if axis and mesh.shape[axis] > 1 else '-'
                 for axis in row.spec),
        f'{row.param_bytes:,}', f'{row.state_bytes:,}'))
  cells.append((
      'all', '', '', '', f'{sum(row.param_bytes for row in rows):,}',
      f'{sum(row.state_bytes for row in rows):,}'))
  widths = [max(map(len, column)) for column in zip(*cells)]
  lines = ['  '.join(
      cell.rjust(width) if i >= 4 else cell.ljust(width)
      for i, (cell, width) in enumerate(zip(line, widths))) for line in cells]
  return '\n'.join([
      'rules: ' + ', '.join(f'{name} over {axis}' for name, axis in
                            RULES.items()) + '; no other axis is split',
      f'images: over {types.DATA} x {types.FSDP}',
      'mesh: ' + ' x '.join(f'{name} {n}' for name, n in mesh.shape.items()),
      '', *(line.rstrip() for line in lines)])


def keep_batch_split(
    function: Callable[P, T], mesh: jax.sharding.Mesh,
) -> Callable[P, T]:
  """Returns `function` with the images of a batch kept on their devices.

  A compiler that sees parameters split over `fsdp` along their width may well
  split the activations like that too, and then every device works on every
  image. So what modules take and give is held to the split of the batch: the
  parameters come to the images, a layer at a time, and never the other way.

  Args:
    function: applies linen modules whose arguments and results, the first of
      each, have the batch as their first axis.
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
    return keep(method(keep(args[0]), *args[1:], **kwargs))

  @functools.wraps(function)
  def split(*args: P.args, **kwargs: P.kwargs) -> T:
    with nn.intercept_methods(intercept):
      return function(*args, **kwargs)

  return split
