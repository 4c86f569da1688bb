"""The section `optimizer`: a record for each name, which checks its keys."""

from collections.abc import Mapping
import dataclasses
from typing import Any, Literal

from vit_jax import schema
from vit_jax.optim import layer_decay
from vit_jax.optim import schedules

# Biases, norms' scales, position embeddings and the cls token do not decay.
KERNELS = '.*kernel'
LAYERS = f'{layer_decay.STACKED}.*kernel'


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonConfig:
  """The keys that every optimizer has.

  A regular expression is matched against a parameter's whole path, as in
  'encoder/layers/mlp/kernel', and the first that matches counts. One that is
  the first match of nothing is an error.

  Attributes:
    learning_rate: the peak of the schedule.
    schedule: the learning rate's course.
    weight_decay: multiplied by the learning rate; the docstring of
      `optim.optimizers` says how the figures of other codebases convert.
    weight_decay_rules: pairs of a regular expression and a multiplier of
      `weight_decay`; a parameter that none matches does not decay. A head that
      decays more (arXiv:2106.04560, sec. 3.1):
      `(('head/.*kernel', 100.0), ('.*kernel', 1.0))`. The default may match
      nothing.
    learning_rate_rules: pairs of a regular expression and a multiplier of the
      learning rate; 1 for a parameter that none matches. The decay of a
      parameter is multiplied by its own learning rate.
    layer_decay: factor of the learning rate from one layer to the one below
      it, such as 0.75 (see `optim.layer_decay`); multiplied with the rules'.
    frozen: regular expressions of parameters that are not trained: no update,
      no optimizer state, no part in the clipped norm.
    clip_norm: largest global norm of the gradient; none where not given.
    momentum_dtype: bfloat16 halves the momentum's memory (arXiv:2106.04560,
      sec. 3.4).
  """
  learning_rate: float
  schedule: schedules.ScheduleConfig
  weight_decay: float = 0.0
  weight_decay_rules: tuple[tuple[str, float], ...] = ((KERNELS, 1.0),)
  learning_rate_rules: tuple[tuple[str, float], ...] = ()
  layer_decay: float | None = None
  frozen: tuple[str, ...] = ()
  clip_norm: float | None = None
  momentum_dtype: Literal['float32', 'bfloat16'] = 'float32'

  def __post_init__(self):
    _check_range(self, 0.0, float('inf'), 'learning_rate', 'weight_decay')
    if self.clip_norm is not None and self.clip_norm <= 0.0:
      raise ValueError(
          f'clip_norm must be above 0, but is {self.clip_norm}. Leave it out, '
          'or write none, for no clipping.')
    if self.layer_decay is not None and not 0.0 < self.layer_decay <= 1.0:
      raise ValueError(
          'layer_decay is a factor above 0 and at most 1, such as 0.75, but is '
          f'{self.layer_decay}. Leave it out, or write none, for one learning '
          'rate.')
    for pattern, multiplier in self.weight_decay_rules:
      if not 0.0 <= multiplier < float('inf'):
        raise ValueError(
            f'weight_decay_rules: the multiplier of {pattern!r} must be at '
            f'least 0 and finite, but is {multiplier}.')
    for pattern, multiplier in self.learning_rate_rules:
      if not 0.0 < multiplier < float('inf'):
        raise ValueError(
            f'learning_rate_rules: the multiplier of {pattern!r} must be above '
            f'0 and finite, but is {multiplier}. To leave parameters untrained '
            'name them in frozen, which also saves their optimizer state.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamConfig(CommonConfig):
  """Adam (arXiv:1412.6980) with decoupled weight decay; the pre-training's."""
  name: Literal['adam'] = 'adam'
  beta1: float = 0.9
  beta2: float = 0.999
  epsilon: float = 1e-8

  def __post_init__(self):
    super().__post_init__()
    _check_range(self, 0.0, 1.0, 'beta1', 'beta2')
    _check_range(self, 0.0, float('inf'), 'epsilon')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdConfig(CommonConfig):
  """SGD with momentum m = momentum * m + g; the paper's for fine-tuning."""
  name: Literal['sgd'] = 'sgd'
  momentum: float = 0.9
  nesterov: bool = False

  def __post_init__(self):
    super().__post_init__()
    _check_range(self, 0.0, 1.0, 'momentum')
    if self.nesterov and not self.momentum:
      raise ValueError(
          'nesterov=True needs a momentum above 0. Set momentum=0.9, or '
          'nesterov=False.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdafactorConfig(CommonConfig):
  """Adafactor as changed for Vision Transformers (arXiv:2106.04560, sec. 3.4).

  Against the original (arXiv:1804.04235): a momentum, in bfloat16; no scaling
  by the parameter's norm; no clipping of a parameter's update unless asked;
  the decay of the second moment, 1 - step ** -decay_rate, stops at `beta2_cap`,
  since a decay that goes on to 1 made long runs unstable.

  Attributes:
    momentum: of the scaled gradient, m = momentum * m + (1 - momentum) * u,
      without bias correction; 0 keeps none.
    momentum_dtype: bfloat16 here, where the memory is the point.
    decay_rate: exponent of the second moment's decay.
    beta2_cap: upper limit of the second moment's decay.
    factored: regular expression of the parameters whose second moment is kept
      as a row and a column over their two largest axes. Kernels alone: the
      biases of scanned layers are [depth, width], which is no matrix. The
      default may match nothing.
    min_factored_size: both of these axes are at least this long, else the
      second moment is kept whole.
    clip_rms: largest root mean square of a parameter's scaled gradient; none
      where not given, 1 in the original.
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
    _check_range(self, 0.0, 1.0, 'momentum', 'beta2_cap')
    _check_range(self, 0.0, float('inf'), 'decay_rate', 'epsilon')
    if self.clip_rms is not None and self.clip_rms <= 0.0:
      raise ValueError(
          f'clip_rms must be above 0, but is {self.clip_rms}. Leave it out, or '
          'write none, for no clipping.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class MuonConfig(CommonConfig):
  """Muon for the layers' matrices, Adam for the rest (arXiv:2502.16982).

  An update of a matrix has the size of one of Adam's: learning rates and decays
  that suit the one suit the other.

  Attributes:
    momentum: m = momentum * m + (1 - momentum) * g, without its bias and with
      Nesterov's step ahead, which is then made orthogonal (see `optim.muon`).
    rms: root mean square of the elements of a matrix' update.
    matrices: regular expression of the parameters that are updated so: kernels,
      of which all axes but the last are the input's. As the method's authors
      have it, neither embeddings nor the head. The default may match nothing.
    beta1: of Adam.
    beta2: of Adam.
    epsilon: of Adam.
  """
  name: Literal['muon'] = 'muon'
  momentum: float = 0.95
  rms: float = 0.2
  matrices: str = LAYERS
  beta1: float = 0.9
  beta2: float = 0.999
  epsilon: float = 1e-8

  def __post_init__(self):
    super().__post_init__()
    _check_range(self, 0.0, 1.0, 'momentum', 'beta1', 'beta2')
    _check_range(self, 0.0, float('inf'), 'rms', 'epsilon')


Config = AdamConfig | SgdConfig | AdafactorConfig | MuonConfig

CONFIGS: Mapping[str, type] = {
    'adam': AdamConfig, 'sgd': SgdConfig, 'adafactor': AdafactorConfig,
    'muon': MuonConfig}


def parse(section: Any) -> Config:
  """Returns the record of a config's section `optimizer`."""
  return schema.parse_choice(CONFIGS, section, where='optimizer')


def _check_range(config: Any, low: float, end: float, *keys: str) -> None:
  """Raises unless low <= value < end for each of the keys."""
  for key in keys:
    value = getattr(config, key)
    if not low <= value < end:
      raise ValueError(
          f'{key} must be at least {low:g} and below {end:g}, but is {value}.')
