"""One update: a pure function of a state and a batch."""

from collections.abc import Callable, Mapping
import math
from typing import Any, Protocol, runtime_checkable

import clu.metrics
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
import optax

from vit_jax import metrics
from vit_jax import types
from vit_jax.training import health


@runtime_checkable
class Loss(Protocol):
  """What an objective offers to be trained on."""

  @property
  def measures(self) -> tuple[str, ...]:
    """Names of what is reported beside the loss."""
    ...

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns the loss, and each of `measures`, for each example."""


# Norms of the last step before a log line; the first two are over the trained
# parameters, the last over all.
NORMS = ('gradient_norm', 'update_norm', 'parameter_norm')


def empty_metrics(loss: Loss, params: types.Params) -> dict[str, Any]:
  """Returns the sums of no step at all."""
  return {
      'loss': metrics.Mean.empty(),
      **{name: metrics.Mean.empty() for name in loss.measures},
      **{name: clu.metrics.LastValue.empty() for name in NORMS},
      'non_finite': health.NonFinite.none(params),
  }


def init_state(
    params: types.Params, *, tx: optax.GradientTransformation, loss: Loss,
    averaging: float | None,
) -> types.TrainState:
  """Returns the state before the first step."""
  params = nn.unbox(params)
  average = jax.tree.map(jnp.copy, params) if averaging else None
  return types.TrainState(
      step=jnp.zeros((), jnp.int32), params=params, opt_state=tx.init(params),
      average=average, metrics=empty_metrics(loss, params))


def build(
    *,
    loss: Loss,
    tx: optax.GradientTransformation,
    prepare: Callable[[types.Batch, PRNGKeyArray], types.Batch],
    key: PRNGKeyArray,
    accumulation: int = 1,
    replicas: int = 1,
    averaging: float | None = None,
    trainable: Any = None,
) -> Callable[[types.TrainState, types.Batch],
              tuple[types.TrainState, Float[Array, '']]]:
  """Returns the training step, to be jitted: the new state and the mean loss.

  Args:
    loss: the objective.
    tx: the optimizer; its updates are added to the parameters.
    prepare: turns a batch as the pipeline gives it into what the model sees;
      sees the whole batch, so that mixup does not depend on `accumulation`.
    key: all randomness of step s comes from `fold_in(key, s)`.
    accumulation: parts that the batch is computed in, one after the other. The
      gradient is that of the whole batch.
    replicas: devices that hold all parameters each, and a share of the batch.
      They sum their gradients once, after the last part. Where it is 1, the
      compiler decides: it sums those of the layers in every part, so that n
      parts send nearly n times what one does.
    averaging: factor b of the Polyak average of the parameters, or None: those
      after k steps have weight b^k beside the latest ones, and the initial ones
      none.
    trainable: a tree of booleans like the parameters, False where frozen: such
      a gradient is zero, and what would lead to it alone is not computed. None
      is all of them.
  """

  def train_step(
      state: types.TrainState, batch: types.Batch,
  ) -> tuple[types.TrainState, Float[Array, '']]:
    prepare_key, loss_key = jax.random.split(
        jax.random.fold_in(key, state.step))
    batch = prepare(batch, prepare_key)
    grads, sums = _gradients(
        loss, state.params, batch, loss_key, parts=accumulation,
        replicas=replicas, trainable=trainable)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    average = state.average
    if averaging is not None:
      average = optax.incremental_update(
          params, state.average, _weight_of_latest(averaging, state.step))
    norms = (grads, updates, params)
    new = {
        **sums,
        **{name: clu.metrics.LastValue(
            optax.global_norm(value), jnp.ones((), jnp.int32))
           for name, value in zip(NORMS, norms)},
        'non_finite': health.NonFinite.check(
            sums['loss'].total, grads, step=state.step + 1)}
    merged = {name: value.merge(new[name])
              for name, value in state.metrics.items()}
    state = types.TrainState(
        step=state.step + 1, params=params, opt_state=opt_state,
        average=average, metrics=merged)
    return state, sums['loss'].compute()

  return train_step


def stop_frozen(params: types.Params, trainable: Any) -> types.Params:
  """Returns parameters of which the frozen ones are constants to a gradient.

  Args:
    params: all of them.
    trainable: a tree of booleans like them; None is all True.
  """
  if trainable is None:
    return params
  return jax.tree.map(
      lambda x, trained: x if trained else jax.lax.stop_gradient(x),
      params, trainable)


def _weight_of_latest(
    factor: float, before: Int[Array, ''],
) -> Float[Array, '']:
  """Returns (1 - b) / (1 - b^(s + 1)) after s steps: 1, then less and less."""
  steps = before.astype(jnp.float32) + 1
  return (1 - factor) / -jnp.expm1(steps * math.log(factor))


def _gradients(
    loss: Loss, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
    *, parts: int, replicas: int = 1, trainable: Any,
) -> tuple[types.Params, dict[str, metrics.Mean]]:
  """Returns gradients of the batch's mean loss, and its metrics.

  Each part contributes its share of the *whole* batch's mean, so that parts
  just add up, whatever their masks; clipping comes after, on the total.
  """
  num_real = jnp.maximum(batch['mask'].sum(), 1.0)

  def share(params, part, part_key):
    params = stop_frozen(params, trainable)
    losses, measures = loss(params, part, part_key)
    mask = part['mask']
    sums = {name: metrics.Mean.from_model_output(values, mask)
            for name, values in {'loss': losses, **measures}.items()}
    return jnp.where(mask > 0, losses, 0).sum() / num_real, sums

  gradient = jax.grad(share, has_aux=True)
  if parts == 1:
    return gradient(params, batch, key)

  # Part i takes rows i, i + parts, ...: every device keeps its own rows.
  split = jax.tree.map(
      lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch)
  # A gradient for each device, of its own rows of a part.
  if replicas > 1:
    split = jax.tree.map(
        lambda x: x.reshape(parts, replicas, -1, *x.shape[2:]), split)
    gradient = jax.vmap(gradient, in_axes=(None, 0, None))

  def add(carry, xs):
    part, i = xs
    new = gradient(params, part, jax.random.fold_in(key, i))
    grads = jax.tree.map(jnp.add, carry[0], new[0])
    return (grads, {n: m.merge(new[1][n]) for n, m in carry[1].items()}), None

  empty = {name: metrics.Mean.empty() for name in ('loss', *loss.measures)}
  zeros = jax.tree.map(jnp.zeros_like, (params, empty))
  if replicas > 1:
    zeros = jax.tree.map(
        lambda x: jnp.zeros((replicas, *x.shape), x.dtype), zeros)
  total, _ = jax.lax.scan(add, zeros, (split, jnp.arange(parts)))
  return total if replicas == 1 else jax.tree.map(lambda x: x.sum(0), total)
