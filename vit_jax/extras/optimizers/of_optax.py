"""All optimizers of Optax."""

from collections.abc import Callable
import dataclasses
import inspect
import re
from typing import Any

import jax
import optax
from optax import contrib

from vit_jax import schema
from vit_jax import tree
from vit_jax.exceptions import UserError
from vit_jax.optim import config

# The updates of all but muon are not proportional to the learning rate, which
# is 1 here. Optax's Muon takes the stacked biases of all layers for a matrix.
_UNSUITABLE = ('cocob', 'dadapt_adamw', 'fromage', 'madgrad', 'rprop', 'muon')


def _optax_optimizers() -> dict[str, Callable[..., Any]]:
  """Returns Optax's optimizers by name: 'optax.lion', 'optax.contrib.adopt'.

  An optimizer is a public function with a learning rate. Its `schedule_free`
  variants are left out, because `ScheduleFreeConfig` evaluates their average,
  and those of `_UNSUITABLE`.
  """
  return {
      f'{module.__name__}.{name}': function
      for module in (optax, contrib)
      for name, function in inspect.getmembers(module, inspect.isfunction)
      if 'learning_rate' in inspect.signature(function).parameters
      and not name.startswith(('_', 'scale_by_', 'schedule_free'))
      and name not in _UNSUITABLE}


OPTAX = _optax_optimizers()
# Optax's names of `momentum_dtype`.
MOMENTUM_DTYPES = {'mu_dtype', 'accumulator_dtype', 'dtype_momentum'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptaxConfig(config.CommonConfig):
  """Any optimizer of `optax` or `optax.contrib`.

      optimizer = {'name': 'optax.lion', 'arguments': {'b1': 0.95},
                   'learning_rate': 1e-4, 'weight_decay': 1.0, ...}

  The layers of an encoder are stacked in one array, so optimizers with a norm
  per parameter (lamb, lars) take it over all layers at once. `optax.lars`
  scales the updates of kernels only, as in the code of MAE.

  The optimizer runs with a learning rate of 1 and without its own weight decay;
  schedule, clipping, `weight_decay` and the rules are the same as for the other
  optimizers.

  Attributes:
    arguments: keyword arguments of the function of that name.
  """
  arguments: dict[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    super().__post_init__()
    schema.check_name(self.name, list(OPTAX), what='name')
    known = [name for name in inspect.signature(OPTAX[self.name]).parameters
             if name != 'learning_rate']
    for name in self.arguments:
      schema.check_name(name, known, what=f'argument of {self.name}')
    if self.momentum_dtype != 'float32' and not set(known) & MOMENTUM_DTYPES:
      raise UserError(
          f'{self.name} has no momentum_dtype, but it is '
          f'{self.momentum_dtype!r}. Set it to float32.')

  def scale(self, params: Any) -> optax.GradientTransformation:
    """Returns the optimizer at learning rate 1, with the sign reversed."""
    function, arguments = OPTAX[self.name], dict(self.arguments)
    for name in inspect.signature(function).parameters:
      if name == 'weight_decay':
        arguments.setdefault(name, 0.0)
      elif name in MOMENTUM_DTYPES:
        arguments.setdefault(name, self.momentum_dtype)
      elif name == 'trust_ratio_mask':
        arguments.setdefault(name, lambda updates: tree.map_with_name(
            lambda path, _: bool(re.fullmatch(config.KERNELS, path)), updates))
    try:
      tx = optax.chain(
          function(learning_rate=1.0, **arguments), optax.scale(-1.0))
      _, state = jax.eval_shape(
          lambda p: tx.update(p, tx.init(p), p), params)
      if any(not leaf.size or jax.dtypes.issubdtype(
          leaf.dtype, jax.dtypes.extended) for leaf in jax.tree.leaves(state)):
        raise ValueError('checkpoints cannot hold its state')
    except (TypeError, ValueError) as error:
      raise UserError(
          f'optimizer.name {self.name} with arguments {arguments} does not '
          f'work in a training step: {error}. Change optimizer.arguments or '
          'the name.') from error
    return tx
