"""Settings that reduce the memory of a step, each with its cost."""

from collections.abc import Iterator
import dataclasses
import math
import typing

from vit_jax import console
from vit_jax import optim
from vit_jax import types
from vit_jax.experiment import config as config_lib
from vit_jax.plan import step_cost

REMAT_COST = {
    'vit': {
        'attention': 'recomputes attention, norms and GELU: about +0.5 % FLOPs',
        'dots': 'also recomputes attention products: about +1 % FLOPs',
        'full': 'recomputes the whole forward pass: about +22 % FLOPs'},
    # 'attention' equals 'dots'.
    'resnet': {
        'dots': 'recomputes all but the convolutions',
        'full': 'recomputes the whole forward pass'},
}


@dataclasses.dataclass(frozen=True)
class Suggestion:
  """A change of the config that saves device memory.

  Attributes:
    override: as written after `--config.`.
    saved_bytes: bytes saved per device; None if unknown before compilation.
    cost: drawback of the change.
  """
  override: str
  saved_bytes: int | None
  cost: str


def suggest(
    config: config_lib.Config, cost: step_cost.StepCost,
) -> Iterator[Suggestion]:
  """Yields the settings that may make a step fit, the cheapest first."""
  if _has_float32_momentum(config.optimizer):
    # Frozen parameters have no momentum.
    all_train = cost.memory.optimizer_bytes >= cost.memory.params_bytes
    yield Suggestion(
        'optimizer.momentum_dtype=bfloat16',
        cost.memory.params_bytes // 2 if all_train else None,
        'momentum rounded to bfloat16 (arXiv:2106.04560, section 3.4)')
  old, new = cost.mesh[types.FSDP], _largest_fsdp(config, cost)
  if new > old:
    yield Suggestion(
        f'mesh.fsdp={new}', round(cost.memory.state_bytes * (1 - old / new)),
        'all-gathers parameters in every layer; smaller powers of two '
        'communicate less')
  levels = typing.get_args(
      typing.get_type_hints(type(config.model)).get('remat'))
  costs = REMAT_COST[config.model.name]
  for level in levels[levels.index(config.model.remat) + 1:]:
    if level in costs:
      yield Suggestion(f'model.remat={level}', None, costs[level])
  if config.accumulation != 'auto':
    yield Suggestion('accumulation=auto', None,
                     'more microbatches: smaller matmuls, other dropout masks')
  yield Suggestion(f'batch_size={max(1, config.batch_size // 2)}', None,
                   'another batch size needs another learning rate')


def _has_float32_momentum(optimizer: optim.Config) -> bool:
  """Whether there is a momentum that `momentum_dtype` could halve."""
  if optimizer.momentum_dtype != 'float32' or not getattr(
      optimizer, 'momentum', True):
    return False
  try:
    dataclasses.replace(optimizer, momentum_dtype='bfloat16')
  except ValueError:  # An optimizer of Optax without this argument.
    return False
  return True


def _largest_fsdp(config: config_lib.Config, cost: step_cost.StepCost) -> int:
  """Returns the largest power of two that divides replicas and model width."""
  replicas = cost.mesh[types.DATA] * cost.mesh[types.FSDP]
  if config.mesh.data != -1:  # Other axes cannot grow.
    return 1
  width = getattr(config.model, 'width', 0) or getattr(
      getattr(config.model, 'backbone', None), 'width', 0)
  divisor = math.gcd(replicas, width)
  return divisor & -divisor


def show(suggestions: list[Suggestion], cost: step_cost.StepCost) -> None:
  """Prints the excess memory and the suggestions."""
  memory = cost.memory
  excess = memory.total_bytes - (memory.capacity_bytes or 0)
  print(f'Does not fit: needs {console.format_bytes(memory.total_bytes)} per '
        f'device, {console.format_bytes(excess)} more\nthan available. '
        'Settings that reduce memory:')
  for row in suggestions:
    saves = '' if row.saved_bytes is None else (
        f', saves {console.format_bytes(row.saved_bytes)}')
    # The flag is on a line without the cost, so that it is easy to copy.
    print(f'  --config.{row.override}{saves}\n      {row.cost}')
