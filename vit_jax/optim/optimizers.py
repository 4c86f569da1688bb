"""Optimizers: Adam, SGD, Adafactor and Muon as chains of Optax transformations.

Whatever the name, one update of a parameter p with gradient g is

  g = g * min(1, clip_norm / |g|)           global norm over trained parameters
  u = adam(g) or sgd(g) or adafactor(g) or muon(g)
  p = p - learning_rate(step) * multiplier(p) * (u + weight_decay(p) * p)

so weight decay is decoupled from the gradient's statistics but multiplied by
the learning rate: AdamW of Loshchilov & Hutter (arXiv:1711.05101) as Optax,
torch and Keras have it. The paper's 0.1 and 0.03 mean this. Figures convert:

  torch AdamW, Keras AdamW, optax.adamw   the same figure
  big_vision `wd`                         ours = wd / lr: there the decay is
                                          multiplied by the schedule relative
                                          to its peak, not by lr, so its
                                          wd=1e-4 with lr=1e-3 is our 0.1
  torch SGD, Adam (coupled, "L2")         no equivalent: there the decay enters
                                          the momentum; for plain SGD without
                                          momentum the same figure
"""

from collections.abc import Callable, Mapping
import dataclasses
import re
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vit_jax import records
from vit_jax import tree
from vit_jax.optim import layer_decay
from vit_jax.optim import muon
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
    weight_decay: multiplied by the learning rate; the module's docstring says
      how the figures of other codebases convert.
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


class Optimizer(NamedTuple):
  """What a training step needs of an optimizer.

  Attributes:
    tx: gradients to updates, for `optax.apply_updates`: the updates already
      carry the learning rate and its sign. Wherever the state mirrors the
      parameters, the path of a leaf ends with the parameter's. Its shape is
      then the parameter's too, but for Adafactor's `v_row`, `v_col` and `v`,
      where a factored parameter has [..] less one axis, and [1] stands for
      what is not kept.
    schedule: the learning rate of the update that follows `step` others.
    trainable: a tree of booleans like the parameters: False where frozen.
  """
  tx: optax.GradientTransformation
  schedule: schedules.Schedule
  trainable: Any


def parse(section: Any) -> Config:
  """Returns the record of a config's section `optimizer`."""
  return records.parse_choice(CONFIGS, section, where='optimizer')


def build(
    config: Config, params: Any, *, total_steps: int,
    to_steps: Callable[[records.Duration], int],
) -> Optimizer:
  """Builds an optimizer for parameters of these names and shapes.

  Args:
    config: what `parse` returned.
    params: nested dicts of arrays or `jax.ShapeDtypeStruct`; read for their
      names alone, nothing is allocated.
    total_steps: number of updates in the run.
    to_steps: converts a duration to a number of steps.

  Raises:
    ValueError: if a rule matches no parameter, nothing is left to train, there
      are no layers to decay over, or the warm-up is longer than the run.
  """
  schedule = schedules.build(
      config.schedule, peak=config.learning_rate, total_steps=total_steps,
      to_steps=to_steps)
  trainable = _trainable(config, params)
  decay = _first_match(
      params, config.weight_decay_rules, default=0.0,
      where='weight_decay_rules',
      lenient=config.weight_decay_rules == CommonConfig.weight_decay_rules)
  multipliers = _first_match(
      params, config.learning_rate_rules, default=1.0,
      where='learning_rate_rules')
  if config.layer_decay is not None:
    multipliers = jax.tree.map(
        lambda by_rule, by_layer: by_rule * by_layer, multipliers,
        layer_decay.multipliers(params, config.layer_decay))
  # Named, so that a state's leaf reads 'adam/mu/encoder/...' in a checkpoint,
  # and keeps its name when a step is added to the chain.
  steps: list[tuple[str, optax.GradientTransformation]] = [
      (config.name, _scale(config, params))]
  if config.clip_norm is not None:
    steps.insert(0, ('clip', optax.clip_by_global_norm(config.clip_norm)))
  if config.weight_decay:
    steps.append(('weight_decay', _add_decay(
        jax.tree.map(lambda rule: config.weight_decay * rule, decay))))
  if config.learning_rate_rules or config.layer_decay is not None:
    steps.append(('multipliers', _multiply(multipliers)))
  steps.append(('learning_rate', optax.scale_by_learning_rate(schedule)))
  tx = optax.named_chain(*steps)
  if config.frozen:
    frozen = jax.tree.map(lambda trained: not trained, trainable)
    tx = optax.selective_transform(tx, freeze_mask=frozen)
  return Optimizer(tx=tx, schedule=schedule, trainable=trainable)


def _trainable(config: Config, params: Any) -> Any:
  """Returns a tree of booleans, False where a parameter is frozen."""
  trainable = _first_match(
      params, [(pattern, False) for pattern in config.frozen], default=True,
      where='frozen')
  if not any(jax.tree.leaves(trainable)):
    raise ValueError(
        f'optimizer.frozen {list(config.frozen)} matches every parameter: '
        'nothing is left to train.')
  return trainable


def _first_match(
    params: Any, rules: Any, *, default: Any, where: str, lenient: bool = False,
) -> Any:
  """`tree.map_rules`; if lenient, leaves out the rules that match nothing."""
  if lenient:
    names = list(tree.flatten(params))
    rules = [rule for rule in rules
             if any(re.fullmatch(rule[0], name) for name in names)]
  return tree.map_rules(
      params, rules, default=default, where=f'optimizer.{where}')


def _scale(config: Config, params: Any) -> optax.GradientTransformation:
  """Returns the transformation that gives the optimizer its name."""
  momentum_dtype = jnp.dtype(config.momentum_dtype)
  if isinstance(config, SgdConfig):
    if not config.momentum:
      return optax.identity()
    return optax.trace(
        config.momentum, nesterov=config.nesterov,
        accumulator_dtype=momentum_dtype)
  if isinstance(config, AdafactorConfig):
    return _scale_by_adafactor(config, params)
  adam = optax.scale_by_adam(
      b1=config.beta1, b2=config.beta2, eps=config.epsilon,
      mu_dtype=momentum_dtype)
  if isinstance(config, AdamConfig):
    return adam
  labels = _first_match(
      params, [(config.matrices, 'matrices')], default='rest',
      where='matrices', lenient=config.matrices == LAYERS)
  return optax.partition(
      {'rest': adam, 'matrices': muon.scale_by_muon(
          beta=config.momentum, rms=config.rms, mu_dtype=momentum_dtype)},
      labels)


def _scale_by_adafactor(
    config: AdafactorConfig, params: Any,
) -> optax.GradientTransformation:

  def beta2(count, decay_rate):
    step = jnp.asarray(count, jnp.float32) + 1.0
    return jnp.minimum(config.beta2_cap, 1.0 - step ** -decay_rate)

  def scale_by_rms(factored: bool) -> optax.GradientTransformation:
    return optax.scale_by_factored_rms(
        factored=factored, decay_rate=config.decay_rate,
        min_dim_size_to_factor=config.min_factored_size,
        epsilon=config.epsilon, decay_rate_fn=beta2)

  labels = _first_match(
      params, [(config.factored, 'factored')], default='whole',
      where='factored', lenient=config.factored == KERNELS)
  steps: list[tuple[str, optax.GradientTransformation]] = [
      ('second_moment', optax.partition(
          {'factored': scale_by_rms(True), 'whole': scale_by_rms(False)},
          labels))]
  if config.clip_rms is not None:
    steps.append(('clip_rms', optax.clip_by_block_rms(config.clip_rms)))
  if config.momentum:
    steps.append(('momentum', optax.ema(
        config.momentum, debias=False,
        accumulator_dtype=jnp.dtype(config.momentum_dtype))))
  return optax.named_chain(*steps)


def _add_decay(rates: Any) -> optax.GradientTransformation:
  """Adds to each update its parameter times the rate at the same place."""

  def update(updates: Any, params: Any) -> Any:
    return _map_trained(
        lambda rate, u, p: u + rate * p if rate else u, rates, updates, params)

  return optax.stateless(update)


def _multiply(multipliers: Any) -> optax.GradientTransformation:
  """Multiplies each update by what is at the same place: a factor or several.
  """
  return optax.stateless(
      lambda updates, params: _map_trained(
          lambda multiplier, u: multiplier * u, multipliers, updates))


def _map_trained(function: Callable, values: Any, *trees: Any) -> Any:
  """Maps over whole `values` and trees from which frozen leaves are masked."""
  def apply(value, *leaves):
    masked = isinstance(leaves[0], optax.MaskedNode)
    return leaves[0] if masked else function(value, *leaves)
  return jax.tree.map(apply, values, *trees)


def _check_range(config: Any, low: float, end: float, *keys: str) -> None:
  """Raises unless low <= value < end for each of the keys."""
  for key in keys:
    value = getattr(config, key)
    if not low <= value < end:
      raise ValueError(
          f'{key} must be at least {low:g} and below {end:g}, but is {value}.')
