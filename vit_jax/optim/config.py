"""Section `optimizer` of a config: one record per optimizer.

To add one, write a record that extends `CommonConfig` and returns an Optax
transformation. A config names it as 'my_module:MyRecord', or by its name in
`registry.OPTIMIZERS`.
"""

from collections.abc import Callable, Mapping
import dataclasses
import inspect
import re
from typing import Any, Literal

import jax
import optax
from optax import contrib

from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.optim import schedules

# Kernels decay; biases, norm scales, position embeddings and the cls token do
# not.
KERNELS = '.*kernel'
# Returns the parameters to evaluate for (optimizer state, parameters).
Average = Callable[[Any, types.Params], types.Params]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonConfig:
  """Keys that every optimizer has.

  Rules use the first regular expression that matches the whole path of a
  parameter, such as 'encoder/layers/mlp/kernel'. A rule that is used
  for no parameter is an error.

  Attributes:
    name: name of the optimizer.
    learning_rate: peak of the schedule.
    schedule: learning-rate schedule.
    weight_decay: decoupled weight decay, multiplied by the learning rate; see
      `optim.optimizers` for converting values from other codebases.
    weight_decay_rules: (regular expression, multiplier of `weight_decay`)
      pairs; parameters without a match do not decay. Stronger decay of the head
      (arXiv:2106.04560, sec. 3.1):
      `(('head/.*kernel', 100.0), ('.*kernel', 1.0))`. The default rule may
      match nothing.
    decay_towards: values towards which weights decay: 'zero', or those at the
      'start' of the run, which keeps a pre-trained model near them (L2-SP,
      arXiv:1802.01483) and costs a copy of the decaying parameters.
    learning_rate_rules: (regular expression, multiplier of the learning rate)
      pairs; 1 without a match. Also scales the weight decay of the parameter.
    layer_decay: ratio of the learning rates of adjacent layers, such as 0.75
      (see `optim.layer_decay`); multiplied with `learning_rate_rules`.
    frozen_layers: number of layers, from the first, that are not trained, like
      the embeddings before them; 0 trains all. They cost as much as others.
    frozen: regular expressions of parameters that are not trained: no updates,
      no optimizer state, not part of the clipped norm.
    clip_norm: maximum global norm of the gradient; None disables clipping.
    momentum_dtype: bfloat16 halves the memory of the momentum
      (arXiv:2106.04560, sec. 3.4).
  """
  name: str
  learning_rate: float
  schedule: schedules.ScheduleConfig
  weight_decay: float = 0.0
  weight_decay_rules: tuple[tuple[str, float], ...] = ((KERNELS, 1.0),)
  decay_towards: Literal['zero', 'start'] = 'zero'
  learning_rate_rules: tuple[tuple[str, float], ...] = ()
  layer_decay: float | None = None
  frozen_layers: int = 0
  frozen: tuple[str, ...] = ()
  clip_norm: float | None = None
  momentum_dtype: Literal['float32', 'bfloat16'] = 'float32'

  def __post_init__(self):
    fields.check_range(self, 'learning_rate', 'weight_decay', 'frozen_layers')
    fields.check_range(self, 'clip_norm', above=0)
    fields.check_range(self, 'layer_decay', above=0, most=1)
    for pattern, multiplier in (
        *self.weight_decay_rules, *self.learning_rate_rules):
      if not 0.0 <= multiplier < float('inf'):
        raise ValueError(
            f'The multiplier of {pattern!r} must be at least 0 and finite, but '
            f'is {multiplier}.')
    for pattern, multiplier in self.learning_rate_rules:
      if not multiplier:
        raise ValueError(
            f'learning_rate_rules: the multiplier of {pattern!r} is 0. To '
            'leave parameters untrained, name them in frozen, which also '
            'saves their optimizer state.')

  def scale(self, params: Any) -> optax.GradientTransformation:
    """Returns the optimizer without learning rate and weight decay."""
    raise NotImplementedError

  def with_average(
      self, tx: optax.GradientTransformation, schedule: schedules.Schedule,
  ) -> tuple[optax.GradientTransformation, Average | None]:
    """Returns the whole optimizer, and its own average of parameters if any."""
    del schedule
    return tx, None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamConfig(CommonConfig):
  """Adam (arXiv:1412.6980) with decoupled weight decay, for pre-training.

  Attributes:
    beta1: decay of the first moment.
    beta2: decay of the second moment.
    epsilon: added to the square root of the second moment.
  """
  name: Literal['adam'] = 'adam'  # type: ignore[assignment]
  beta1: float = 0.9
  beta2: float = 0.999
  epsilon: float = 1e-8

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'beta1', 'beta2', end=1)
    fields.check_range(self, 'epsilon')

  def scale(self, params: Any) -> optax.GradientTransformation:
    return optax.scale_by_adam(
        b1=self.beta1, b2=self.beta2, eps=self.epsilon,
        mu_dtype=self.momentum_dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdConfig(CommonConfig):
  """SGD with momentum m = momentum * m + g, for fine-tuning.

  Attributes:
    momentum: decay of the sum of gradients; 0 for none.
    nesterov: whether the update is momentum * m + g instead of m.
  """
  name: Literal['sgd'] = 'sgd'  # type: ignore[assignment]
  momentum: float = 0.9
  nesterov: bool = False

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'momentum', end=1)
    if self.nesterov and not self.momentum:
      raise ValueError(
          'nesterov=True needs a momentum above 0. Set momentum=0.9, or '
          'nesterov=False.')

  def scale(self, params: Any) -> optax.GradientTransformation:
    return optax.trace(
        self.momentum, self.nesterov, self.momentum_dtype,
    ) if self.momentum else optax.identity()


def _optax_optimizers() -> dict[str, Callable[..., Any]]:
  """Returns Optax's optimizers by name: 'optax.lion', 'optax.contrib.adopt'.

  An optimizer is a public function with a learning rate. Its `schedule_free`
  variants are left out, because `ScheduleFreeConfig` evaluates their average.
  """
  return {
      f'{module.__name__}.{name}': function
      for module in (optax, contrib)
      for name, function in inspect.getmembers(module, inspect.isfunction)
      if 'learning_rate' in inspect.signature(function).parameters
      and not name.startswith(('_', 'scale_by_', 'schedule_free'))}


OPTAX = _optax_optimizers()
# Optax's names of `momentum_dtype`.
MOMENTUM_DTYPES = {'mu_dtype', 'accumulator_dtype', 'dtype_momentum'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptaxConfig(CommonConfig):
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
    known = [name for name in inspect.signature(OPTAX[self.name]).parameters
             if name != 'learning_rate']
    for name in self.arguments:
      schema.check_name(name, known, what=f'argument of {self.name}')
    if self.momentum_dtype != 'float32' and not set(known) & MOMENTUM_DTYPES:
      raise ValueError(
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
            lambda path, _: bool(re.fullmatch(KERNELS, path)), updates))
    try:
      tx = optax.chain(
          function(learning_rate=1.0, **arguments), optax.scale(-1.0))
      jax.eval_shape(lambda p: tx.update(p, tx.init(p), p), params)
    except (TypeError, ValueError) as error:
      raise ValueError(
          f'optimizer.name {self.name} with arguments {arguments} does not '
          f'work in a training step: {error}. Change optimizer.arguments or '
          'the name.') from error
    return tx


def config_type(name: Any) -> type[CommonConfig]:
  """Returns the config record of an optimizer."""
  return registry.find(name, {
      **registry.OPTIMIZERS,
      **dict.fromkeys(OPTAX, f'{__name__}:{OptaxConfig.__name__}'),
  }, what='optimizer.name', kind=CommonConfig)


def parse(section: Mapping[str, Any]) -> CommonConfig:
  """Returns the record of section `optimizer` of a config."""
  return schema.parse(
      config_type(section.get('name')), section, where='optimizer')
