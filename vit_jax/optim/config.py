"""Section `optimizer` of a config: one record per optimizer.

To add one, write a record that extends `CommonConfig` and returns an Optax
transformation. A config names it as 'my_module:MyRecord', or by its name in
`registry.OPTIMIZERS`.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, Literal

import optax

from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax import types
from vit_jax.exceptions import UserError
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
    name: the optimizer, one of `registry.OPTIMIZERS` or 'module:Name'
      (docs/extend.md).
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
      (BEiT, arXiv:2106.08254); multiplied with `learning_rate_rules`.
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
        raise UserError(
            f'The multiplier of {pattern!r} must be at least 0 and finite, but '
            f'is {multiplier}.')
    for pattern, multiplier in self.learning_rate_rules:
      if not multiplier:
        raise UserError(
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
      raise UserError(
          'nesterov=True needs a momentum above 0. Set momentum=0.9, or '
          'nesterov=False.')

  def scale(self, params: Any) -> optax.GradientTransformation:
    return optax.trace(
        self.momentum, self.nesterov, self.momentum_dtype,
    ) if self.momentum else optax.identity()


def config_type(name: Any) -> type[CommonConfig]:
  """Returns the config record of an optimizer; one is for all of Optax."""
  return registry.find(
      'optax.NAME' if str(name).startswith('optax.') else name,
      registry.OPTIMIZERS, what='optimizer.name', kind=CommonConfig)


def parse(section: Mapping[str, Any]) -> CommonConfig:
  """Returns the record of section `optimizer` of a config."""
  return schema.parse(
      config_type(section.get('name', '')), section, where='optimizer')
