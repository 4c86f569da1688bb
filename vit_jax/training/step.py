"""The training step: a pure function of a state and a batch."""

from collections.abc import Callable, Collection, Mapping
import dataclasses
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
  """The part of an `objectives.Objective` that a step needs.

  One that compares the examples of a batch also has `embed` and `compare`, and
  calling it is `compare(embed(params, batch, key), batch['mask'], key)`.
  """

  @property
  def metrics(self) -> Collection[str]:
    """Names of the metrics besides the loss."""

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns the loss and metrics of each example."""


# Norms at the last step before a log line. Gradients and updates of parameters
# that `optimizer.frozen` matches are zero.
NORMS = ('gradient_norm', 'update_norm', 'parameter_norm')


def empty_metrics(loss: Loss, params: types.Params) -> dict[str, Any]:
  """Returns the metrics before the first step."""
  return {
      'loss': metrics.Mean.empty(),
      **{name: metrics.Mean.empty() for name in loss.metrics},
      **{name: clu.metrics.LastValue.empty() for name in NORMS},
      'non_finite': health.NonFinite.none(params),
  }


def init_state(
    params: types.Params, *, tx: optax.GradientTransformation, loss: Loss,
    averaging: bool,
) -> types.TrainState:
  """Returns the state before the first step, with or without an average."""
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
    averaging: float | None = None,
    average_of: Callable[[Any, types.Params], types.Params] | None = None,
    trainable: Any = None,
) -> Callable[[types.TrainState, types.Batch],
              tuple[types.TrainState, Float[Array, '']]]:
  """Returns the unjitted training step, which returns the state and mean loss.

  Args:
    loss: the objective.
    tx: the optimizer.
    prepare: converts a batch of the pipeline to a prepared one, see
      `types.Batch`. It receives the whole batch, so that mixup does not depend
      on `accumulation`.
    key: random key; step s uses `fold_in(key, s)`.
    accumulation: number of microbatches. The gradient is that of the batch.
    averaging: decay b of the Polyak average, or None. Parameters of k steps ago
      have weight b^k relative to the latest; the initial ones have none.
    average_of: returns the average for the optimizer state and parameters, in
      place of a Polyak average.
    trainable: tree of booleans, False for frozen parameters, whose gradients
      are zero and not computed; None trains all.
  """

  def train_step(
      state: types.TrainState, batch: types.Batch,
  ) -> tuple[types.TrainState, Float[Array, '']]:
    prepare_key, loss_key = jax.random.split(
        jax.random.fold_in(key, state.step))
    grads, sums = _gradients(
        loss, state.params, prepare(batch, prepare_key), loss_key,
        num_microbatches=accumulation, trainable=trainable)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    average = state.average
    if averaging is not None:
      weight = _weight_of_latest(averaging, state.step)
      average = jax.tree.map(  # Exact where a parameter is constant.
          lambda new, old: old + weight * (new - old), params, state.average)
    elif average_of is not None:
      average = average_of(opt_state, params)
    # Not `updates`: XLA would write them to memory for their norm alone.
    change = jax.tree.map(jnp.subtract, params, state.params)
    norms = (grads, change, params)
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
  """Stops the gradients of parameters that are not `trainable` (None: all)."""
  if trainable is None:
    return params
  return jax.tree.map(
      lambda x, trained: x if trained else jax.lax.stop_gradient(x),
      params, trainable)


def _weight_of_latest(
    decay: float, step: Int[Array, ''],
) -> Float[Array, '']:
  """Returns (1 - b) / (1 - b^(s + 1)) for decay b at step s, from 0."""
  steps = step.astype(jnp.float32) + 1
  return (1 - decay) / -jnp.expm1(steps * math.log(decay))


def _gradients(
    loss: Loss, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
    *, num_microbatches: int, trainable: Any,
) -> tuple[types.Params, dict[str, metrics.Mean]]:
  """Returns the gradients of the mean loss and its metrics.

  Each microbatch contributes its share of the mean over the *whole* batch, so
  that gradients add up for any mask. The sum is clipped later.
  """
  if num_microbatches > 1 and hasattr(loss, 'compare'):
    return _coupled_gradients(
        loss, params, batch, key, num_microbatches=num_microbatches,
        trainable=trainable)
  num_real = jnp.maximum(batch['mask'].sum(), 1.0)

  def share_of_mean(params, microbatch, microbatch_key):
    params = stop_frozen(params, trainable)
    losses, others = loss(params, microbatch, microbatch_key)
    mask = microbatch['mask']
    sums = {name: metrics.Mean.from_model_output(values, mask)
            for name, values in {'loss': losses, **others}.items()}
    return jnp.where(mask > 0, losses, 0).sum() / num_real, sums

  gradient = jax.grad(share_of_mean, has_aux=True)
  if num_microbatches == 1:
    return gradient(params, batch, key)

  def add(carry, xs):
    microbatch, i = xs
    new = gradient(params, microbatch, jax.random.fold_in(key, i))
    grads = jax.tree.map(jnp.add, carry[0], new[0])
    return (grads, {n: m.merge(new[1][n]) for n, m in carry[1].items()}), None

  empty = {name: metrics.Mean.empty() for name in ('loss', *loss.metrics)}
  zeros = jax.tree.map(jnp.zeros_like, (params, empty))
  total, _ = jax.lax.scan(add, zeros, (
      _split(batch, num_microbatches), jnp.arange(num_microbatches)))
  return total


def _split(batch: types.Batch, num_microbatches: int) -> types.Batch:
  """Returns rows [num_microbatches, rows].

  Microbatch i takes rows i, i + num_microbatches, ...: devices keep their own
  rows.
  """
  return jax.tree.map(
      lambda x: x.reshape(
          -1, num_microbatches, *x.shape[1:]).swapaxes(0, 1), batch)


_COTANGENT = 'cotangent'  # Gradient of the loss w.r.t. embeddings.


@dataclasses.dataclass(frozen=True)
class _Linearised:
  """Sum over independent examples with the gradient of a coupled loss."""
  loss: Any
  metrics: tuple[str, ...] = ()

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
  ) -> tuple[Float[Array, 'batch'], dict[str, Any]]:
    products = self.loss.embed(params, batch, key) * batch[_COTANGENT]
    return products.reshape(len(products), -1).sum(axis=1), {}


def _coupled_gradients(
    loss: Any, params: types.Params, batch: types.Batch,
    key: PRNGKeyArray, *, num_microbatches: int, trainable: Any,
) -> tuple[types.Params, dict[str, metrics.Mean]]:
  """Returns the same as `_gradients`, for the comparison of a whole batch.

  Embeds all microbatches, compares all embeddings, then embeds each microbatch
  again for the gradient, with the same dropout masks (GradCache, arXiv
  2101.06983, section 3.2). This takes one additional forward pass.
  """
  embeddings = jax.lax.map(
      lambda xs: loss.embed(params, xs[0], jax.random.fold_in(key, xs[1])),
      (_split(batch, num_microbatches), jnp.arange(num_microbatches)))
  embeddings = embeddings.swapaxes(0, 1).reshape(-1, *embeddings.shape[2:])
  mask = batch['mask']

  def sum_of_losses(embeddings):
    losses, others = loss.compare(embeddings, mask, key)
    sums = {name: metrics.Mean.from_model_output(values, mask)
            for name, values in {'loss': losses, **others}.items()}
    return jnp.where(mask > 0, losses, 0).sum(), sums

  cotangent, sums = jax.grad(sum_of_losses, has_aux=True)(embeddings)
  grads, _ = _gradients(
      _Linearised(loss), params, {**batch, _COTANGENT: cotangent}, key,
      num_microbatches=num_microbatches, trainable=trainable)
  return grads, sums
