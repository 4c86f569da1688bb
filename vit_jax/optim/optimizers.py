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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax.exceptions import UserError
from vit_jax.optim import config as optim_config
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
  average: optim_config.Average | None = None


def build(
    config: optim_config.CommonConfig, params: Any, *, total_steps: int,
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
    UserError: if a rule matches no parameter, every parameter is frozen, the
      warm-up is longer than the run, or Optax refuses its arguments.
  """
  schedule = schedules.build(
      config.schedule, peak=config.learning_rate, total_steps=total_steps,
      to_steps=to_steps)
  trainable = _trainable(config, params)
  decay = tree.map_rules(
      params, config.weight_decay_rules, default=0.0,
      where='optimizer.weight_decay_rules', optional=[optim_config.KERNELS])
  multipliers = tree.map_rules(
      params, config.learning_rate_rules, default=1.0,
      where='optimizer.learning_rate_rules')
  by_layer = config.layer_decay is not None or config.frozen_layers
  if by_layer:
    multipliers = jax.tree.map(
        lambda by_rule, by_layer: by_rule * by_layer, multipliers,
        registry.load(registry.LAYER_DECAY)(
            params, config.layer_decay or 1.0, frozen=config.frozen_layers))
  # Named, so that paths in checkpoints, such as 'adam/mu/encoder/...', do not
  # change when the chain grows.
  steps: list[tuple[str, optax.GradientTransformation]] = [
      (config.name, config.scale(params))]
  if config.clip_norm is not None:
    clip = by_norm = optax.clip_by_global_norm(config.clip_norm)
    if config.frozen_layers:  # Not a part of the norm.
      trained = jax.tree.map(lambda multiplier: multiplier > 0, multipliers)
      clip = optax.stateless(lambda grads, params: by_norm.update(_map_trained(
          lambda one, g: one * g, trained, grads), optax.EmptyState())[0])
    steps.insert(0, ('clip', clip))
  if config.weight_decay:
    rates = jax.tree.map(lambda rule: config.weight_decay * rule, decay)
    steps.append(('weight_decay', _decay(
        rates, to_start=config.decay_towards == 'start')))
  if config.learning_rate_rules or by_layer:
    steps.append(('multipliers', optax.stateless(
        lambda updates, params: _map_trained(
            lambda multiplier, u: multiplier * u, multipliers, updates))))
  steps.append(('learning_rate', optax.scale_by_learning_rate(schedule)))
  tx, average = config.with_average(optax.named_chain(*steps), schedule)
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
    origin = start if to_start else jax.tree.map(jnp.zeros_like, params)
    return _map_trained(
        lambda rate, u, p, o: u + rate * (p - o) if rate else u,
        rates, updates, params, origin), start

  return optax.GradientTransformation(init, update)


def _trainable(config: optim_config.CommonConfig, params: Any) -> Any:
  """Returns a tree of booleans, False where a parameter is frozen."""
  trainable = tree.map_rules(
      params, [(pattern, False) for pattern in config.frozen], default=True,
      where='optimizer.frozen')
  if not any(jax.tree.leaves(trainable)):
    raise UserError(
        f'optimizer.frozen {list(config.frozen)} matches every parameter: '
        'nothing is left to train.')
  return trainable


def _map_trained(function: Callable, values: Any, *trees: Any) -> Any:
  """Maps over `values` and trees in which frozen leaves are masked."""
  def apply(value, *leaves):
    masked = isinstance(leaves[0], optax.MaskedNode)
    return leaves[0] if masked else function(value, *leaves)
  return jax.tree.map(apply, values, *trees)
