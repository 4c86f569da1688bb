"""Settings that reduce the memory of a step, each with its cost."""

from collections.abc import Iterator
import math
import typing

from vit_jax import console
from vit_jax import types
from vit_jax.experiment import config as config_lib
from vit_jax.plan import step_cost

REMAT_COST = {
    'attention': 'recomputes attention, norms and GELU: about +0.5 % FLOPs',
    'dots': 'recomputes all but the large products: about +1 % FLOPs',
    'full': 'recomputes the whole forward pass: about +22 % FLOPs'}


def suggest(
    config: config_lib.Config, cost: step_cost.StepCost,
) -> Iterator[tuple[str, str]]:
  """Yields settings that may make a step fit, the cheapest first.

  Each is an override, as written after `--config.`, and its drawback.
  """
  optimizer = config.optimizer
  # Optimizers of Optax may lack a momentum, or have it in another argument.
  if (optimizer.momentum_dtype == 'float32'
      and getattr(optimizer, 'momentum', True)
      and not optimizer.name.startswith('optax.')):
    yield ('optimizer.momentum_dtype=bfloat16',
           'momentum rounded to bfloat16 (arXiv:2106.04560, section 3.4)')
  # The largest power of two that divides replicas and model width.
  width = getattr(config.model, 'width', 0) or getattr(
      getattr(config.model, 'backbone', None), 'width', 0)
  divisor = math.gcd(cost.mesh[types.DATA] * cost.mesh[types.FSDP], width)
  fsdp = divisor & -divisor
  if config.mesh.data == -1 and fsdp > cost.mesh[types.FSDP]:
    yield (f'mesh.fsdp={fsdp}', 'all-gathers parameters in every layer; '
           'smaller powers of two communicate less')
  levels = typing.get_args(
      typing.get_type_hints(type(config.model)).get('remat'))
  for level in levels[levels.index(config.model.remat) + 1:]:
    yield f'model.remat={level}', REMAT_COST[level]
  if config.accumulation != 'auto':
    yield ('accumulation=auto',
           'more microbatches: smaller matmuls, other dropout masks')
  yield (f'batch_size={max(1, config.batch_size // 2)}',
         'another batch size needs another learning rate')


def show(
    suggestions: list[tuple[str, str]], cost: step_cost.StepCost) -> None:
  """Prints the excess memory and the suggestions."""
  memory = cost.memory
  excess = memory.total_bytes - (memory.capacity_bytes or 0)
  print(f'Does not fit: needs {console.format_bytes(memory.total_bytes)} per '
        f'device, {console.format_bytes(excess)} more\nthan available. '
        'Settings that reduce memory:')
  for override, drawback in suggestions:
    # The flag is on a line without the cost, so that it is easy to copy.
    print(f'  --config.{override}\n      {drawback}')
