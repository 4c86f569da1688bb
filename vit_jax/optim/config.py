"""Section `optimizer` of a config: one record per optimizer."""

from collections.abc import Callable, Mapping
import dataclasses
import inspect
from typing import Any, Literal

import optax
from optax import contrib

from vit_jax import fields
from vit_jax import schema
from vit_jax.optim import layer_decay
from vit_jax.optim import schedules

# Kernels decay; biases, norm scales, position embeddings and the cls token do
# not.
KERNELS = '.*kernel'
# Kernels of encoder layers and ResNet units.
LAYERS = rf'({layer_decay.STACKED}|backbone/block\d+/).*kernel'


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamConfig(CommonConfig):
  """Adam (arXiv:1412.6980) with decoupled weight decay, for pre-training.

  Attributes:
    beta1: decay of the first moment.
    beta2: decay of the second moment.
    epsilon: added to the square root of the second moment.
  """
  name: Literal['adam'] = 'adam'
  beta1: float = 0.9
  beta2: float = 0.999
  epsilon: float = 1e-8

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'beta1', 'beta2', end=1)
    fields.check_range(self, 'epsilon')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleFreeConfig(AdamConfig):
  """Schedule-free AdamW (arXiv:2405.15682): an average replaces the schedule.

  Three sequences of parameters: z, the steps of Adam without momentum; x, their
  mean, which is evaluated, saved and exported as the average; and
  beta1 x + (1 - beta1) z, where gradients are computed. Steps have the weight
  of their squared learning rate, so that those of the warm-up count little.
  """
  name: Literal['schedule_free'] = 'schedule_free'  # type: ignore[assignment]

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'beta1', above=0)
    for key, found, needed in (
        ('schedule.name', self.schedule.name, 'constant'),
        ('momentum_dtype', self.momentum_dtype, 'float32')):
      if found != needed:
        raise ValueError(
            f'{key} is {found!r}, but schedule_free needs {needed!r}.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdConfig(CommonConfig):
  """SGD with momentum m = momentum * m + g, for fine-tuning.

  Attributes:
    momentum: decay of the sum of gradients; 0 for none.
    nesterov: whether the update is momentum * m + g instead of m.
  """
  name: Literal['sgd'] = 'sgd'
  momentum: float = 0.9
  nesterov: bool = False

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'momentum', end=1)
    if self.nesterov and not self.momentum:
      raise ValueError(
          'nesterov=True needs a momentum above 0. Set momentum=0.9, or '
          'nesterov=False.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdafactorConfig(CommonConfig):
  """Adafactor for Vision Transformers (arXiv:2106.04560, sec. 3.4).

  Differences from the original (arXiv:1804.04235): bfloat16 momentum, no
  scaling by parameter norms, no clipping of updates by default, and a second
  moment whose decay, 1 - step ** -decay_rate, is capped at `beta2_cap` because
  a decay that approaches 1 made long runs unstable.

  Attributes:
    momentum: decay for scaled gradients, m = momentum * m + (1 - momentum) * u,
      without bias correction; 0 keeps no momentum.
    momentum_dtype: bfloat16 by default.
    decay_rate: exponent of the decay of the second moment.
    beta2_cap: upper limit of the decay of the second moment.
    factored: regular expression of parameters with a factored second moment: a
      row and a column over the two largest axes. Kernels only: biases of
      scanned layers are [depth, width], which is not a matrix. The default may
      match nothing.
    min_factored_size: second moments are factored if both of these axes have at
      least this length.
    clip_rms: maximum root mean square of the scaled gradient of a parameter; 1
      in the original, None disables it.
    epsilon: added to the squared gradient.
  """
  name: Literal['adafactor'] = 'adafactor'
  momentum: float = 0.9
  momentum_dtype: Literal['float32', 'bfloat16'] = 'bfloat16'
  decay_rate: float = 0.8
  beta2_cap: float = 0.999
  factored: str = KERNELS
  min_factored_size: int = 32
  clip_rms: float | None = None
  epsilon: float = 1e-30

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'momentum', 'beta2_cap', end=1)
    fields.check_range(self, 'decay_rate', 'epsilon')
    fields.check_range(self, 'clip_rms', above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MuonConfig(AdamConfig):
  """Muon for matrices of the layers, Adam for the rest (arXiv:2502.16982).

  Updates of matrices have the size of Adam's, so the learning rate and weight
  decay of Adam carry over.

  Attributes:
    momentum: bias-corrected Nesterov momentum, orthogonalised by `optim.muon`.
    rms: root mean square of the elements of a matrix update.
    matrices: regular expression of the parameters that Muon updates: kernels
      whose last axis is the output. The kernel of a convolution is the matrix
      [height x width x in, out]. Embeddings and head use Adam, as the authors
      recommend. The default may match nothing.
  """
  name: Literal['muon'] = 'muon'  # type: ignore[assignment]
  momentum: float = 0.95
  rms: float = 0.2
  matrices: str = LAYERS

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'momentum', end=1)
    fields.check_range(self, 'rms')


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
    name: 'optax.NAME' or 'optax.contrib.NAME'.
    arguments: keyword arguments of that function.
  """
  name: str
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


Config = (AdamConfig | ScheduleFreeConfig | SgdConfig | AdafactorConfig
          | MuonConfig | OptaxConfig)

CONFIGS: Mapping[str, type] = {
    'adam': AdamConfig, 'sgd': SgdConfig, 'adafactor': AdafactorConfig,
    'muon': MuonConfig, 'schedule_free': ScheduleFreeConfig,
    **dict.fromkeys(OPTAX, OptaxConfig)}


def parse(section: Any) -> Config:
  """Returns the record of section `optimizer` of a config."""
  return schema.parse_choice(CONFIGS, section, where='optimizer')
