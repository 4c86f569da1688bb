"""Optimizers as chains of Optax transformations.

One update of a parameter p with gradient g is

  g = g * min(1, clip_norm / |g|)           global norm over trained parameters
  u = adam(g), sgd(g), adafactor(g), muon(g) or any optimizer of Optax
  p = p - learning_rate(step) * multiplier(p) * (u + weight_decay(p) * p)

with p minus its first value instead of the last p for `decay_towards: 'start'`,
so weight decay is decoupled from the gradient statistics and multiplied by the
learning rate: AdamW (arXiv:1711.05101) as in Optax, torch and Keras, and as in
the paper (0.1 and 0.03). Values from other codebases convert as follows:

  torch AdamW, Keras AdamW, optax.adamw   same value
  big_vision `wd`                         ours = wd / lr: it multiplies decay by
                                          schedule / peak, so wd=1e-4 with
                                          lr=1e-3 is our 0.1
  torch SGD, Adam (coupled, "L2")         no equivalent with momentum, which
                                          includes the decay; same value for
                                          plain SGD
"""

from collections.abc import Callable
import functools
import inspect
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.optim import config as optim_config
from vit_jax.optim import layer_decay
from vit_jax.optim import schedules


class Optimizer(NamedTuple):
  """An optimizer of a training step.

  Attributes:
    tx: maps gradients to updates for `optax.apply_updates`, which include the
      learning rate and its sign. The path of a state leaf that mirrors a
      parameter ends with the path of the parameter. Its shape is that of the
      parameter, except for Adafactor's `v_row`, `v_col` and `v`: factored
      moments lack one axis, and unused ones have shape [1].
    schedule: learning rate as a function of the number of earlier updates.
    trainable: tree of booleans like the parameters: False where frozen.
    average: returns the parameters to evaluate for (optimizer state,
      parameters), if they differ from the parameters.
  """
  tx: optax.GradientTransformation
  schedule: schedules.Schedule
  trainable: Any
  average: Callable[[Any, types.Params], types.Params] | None = None


def build(
    config: optim_config.Config, params: Any, *, total_steps: int,
    to_steps: Callable[[schema.Duration], int],
) -> Optimizer:
  """Builds an optimizer for parameters of these names and shapes.

  Args:
    config: from `config.parse`.
    params: nested dicts of arrays or `jax.ShapeDtypeStruct`; nothing is
      allocated.
    total_steps: number of updates in the run.
    to_steps: converts a duration to a number of steps.

  Raises:
    ValueError: if a rule matches no parameter, every parameter is frozen,
      `layer_decay` has no layers, the warm-up is longer than the run, or Optax
      refuses its arguments.
  """
  schedule = schedules.build(
      config.schedule, peak=config.learning_rate, total_steps=total_steps,
      to_steps=to_steps)
  trainable = _trainable(config, params)
  decay = _first_match(
      params, config.weight_decay_rules, default=0.0,
      where='weight_decay_rules')
  multipliers = _first_match(
      params, config.learning_rate_rules, default=1.0,
      where='learning_rate_rules')
  by_layer = config.layer_decay is not None or config.frozen_layers
  if by_layer:
    multipliers = jax.tree.map(
        lambda by_rule, by_layer: by_rule * by_layer, multipliers,
        layer_decay.multipliers(params, config.layer_decay or 1.0,
                                frozen=config.frozen_layers))
  # Named, so that paths in checkpoints, such as 'adam/mu/encoder/...', do not
  # change when the chain grows.
  steps: list[tuple[str, optax.GradientTransformation]] = [
      (config.name, _scale(config, params))]
  if config.clip_norm is not None:
    steps.insert(0, ('clip', optax.clip_by_global_norm(config.clip_norm)))
  if config.weight_decay:
    rates = jax.tree.map(lambda rule: config.weight_decay * rule, decay)
    steps.append(('weight_decay', _decay(
        rates, to_start=config.decay_towards == 'start')))
  if config.learning_rate_rules or by_layer:
    steps.append(('multipliers', optax.stateless(
        lambda updates, params: _map_trained(
            lambda multiplier, u: multiplier * u, multipliers, updates))))
  steps.append(('learning_rate', optax.scale_by_learning_rate(schedule)))
  tx: optax.GradientTransformation = optax.named_chain(*steps)
  average = None
  if isinstance(config, optim_config.ScheduleFreeConfig):
    tx = optax.contrib.schedule_free(tx, schedule, b1=config.beta1)
    average = functools.partial(_schedule_free_average, config.beta1)
  if config.frozen:
    frozen = jax.tree.map(lambda trained: not trained, trainable)
    tx = optax.selective_transform(tx, freeze_mask=frozen)
  return Optimizer(
      tx=tx, schedule=schedule, trainable=trainable, average=average)


def _decay(rates: Any, *, to_start: bool) -> optax.GradientTransformation:
  """Returns weight decay, towards the first parameters or towards zero."""
  def init(params):
    return _map_trained(
        lambda rate, p: jnp.array(p) if rate else optax.MaskedNode(),
        rates, params) if to_start else optax.EmptyState()

  def update(updates, start, params):
    decayed = _map_trained(
        lambda rate, u, p, *origin: u + rate * (
            p - origin[0] if origin else p) if rate else u,
        rates, updates, params, *([start] if to_start else []))
    return decayed, start

  return optax.GradientTransformation(init, update)


def _schedule_free_average(
    beta1: float, opt_state: Any, params: types.Params) -> types.Params:
  """Returns x for y = beta1 x + (1 - beta1) z; z is in the state."""
  return jax.tree.map(
      lambda z, y: y if isinstance(z, optax.MaskedNode) else (
          y - (1 - beta1) * z) / beta1,
      optax.tree_utils.tree_get(opt_state, 'z'), params,
      is_leaf=lambda z: isinstance(z, optax.MaskedNode))


def _trainable(config: optim_config.Config, params: Any) -> Any:
  """Returns a tree of booleans, False where a parameter is frozen."""
  trainable = _first_match(
      params, [(pattern, False) for pattern in config.frozen], default=True,
      where='frozen')
  if not any(jax.tree.leaves(trainable)):
    raise ValueError(
        f'optimizer.frozen {list(config.frozen)} matches every parameter: '
        'nothing is left to train.')
  return trainable


def _first_match(params: Any, rules: Any, *, default: Any, where: str) -> Any:
  """`tree.map_rules`, but the patterns of defaults may match no parameter."""
  names = list(tree.flatten(params))
  rules = [rule for rule in rules
           if rule[0] not in (optim_config.KERNELS, optim_config.LAYERS)
           or any(re.fullmatch(rule[0], name) for name in names)]
  return tree.map_rules(
      params, rules, default=default, where=f'optimizer.{where}')


def _scale(
    config: optim_config.Config, params: Any,
) -> optax.GradientTransformation:
  """Returns the optimizer without learning rate and weight decay."""
  if isinstance(config, optim_config.OptaxConfig):
    return _from_optax(config, params)
  momentum_dtype = jnp.dtype(config.momentum_dtype)
  if isinstance(config, optim_config.SgdConfig):
    if not config.momentum:
      return optax.identity()
    return optax.trace(
        config.momentum, nesterov=config.nesterov,
        accumulator_dtype=momentum_dtype)
  if isinstance(config, optim_config.AdafactorConfig):
    return _scale_by_adafactor(config, params)
  if isinstance(config, optim_config.ScheduleFreeConfig):
    return optax.scale_by_rms(
        decay=config.beta2, eps=config.epsilon, eps_in_sqrt=False,
        bias_correction=True)
  adam = optax.scale_by_adam(
      b1=config.beta1, b2=config.beta2, eps=config.epsilon,
      mu_dtype=momentum_dtype)
  if not isinstance(config, optim_config.MuonConfig):
    return adam
  from vit_jax.optim import muon
  labels = _first_match(
      params, [(config.matrices, 'matrices')], default='rest', where='matrices')
  return optax.partition(
      {'rest': adam, 'matrices': muon.scale_by_muon(
          beta=config.momentum, rms=config.rms, mu_dtype=momentum_dtype)},
      labels)


def _from_optax(
    config: optim_config.OptaxConfig, params: Any,
) -> optax.GradientTransformation:
  """Returns an Optax optimizer at learning rate 1, with the sign reversed."""
  function = optim_config.OPTAX[config.name]
  arguments = dict(config.arguments)
  for name in inspect.signature(function).parameters:
    if name == 'weight_decay':
      arguments.setdefault(name, 0.0)
    elif name in optim_config.MOMENTUM_DTYPES:
      arguments.setdefault(name, config.momentum_dtype)
    elif name == 'trust_ratio_mask':
      arguments.setdefault(name, lambda updates: tree.map_with_name(
          lambda path, _: bool(re.fullmatch(optim_config.KERNELS, path)),
          updates))
  try:
    tx = optax.chain(
        function(learning_rate=1.0, **arguments), optax.scale(-1.0))
    jax.eval_shape(lambda p: tx.update(p, tx.init(p), p), params)
  except (TypeError, ValueError) as error:
    raise ValueError(
        f'optimizer.name {config.name} with arguments {arguments} does not '
        f'work in a training step: {error}. Change optimizer.arguments or the '
        'name.') from error
  return tx


def _scale_by_adafactor(
    config: optim_config.AdafactorConfig, params: Any,
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
      where='factored')
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


def _map_trained(function: Callable, values: Any, *trees: Any) -> Any:
  """Maps over `values` and trees in which frozen leaves are masked."""
  def apply(value, *leaves):
    masked = isinstance(leaves[0], optax.MaskedNode)
    return leaves[0] if masked else function(value, *leaves)
  return jax.tree.map(apply, values, *trees)
