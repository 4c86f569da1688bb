"""Losses per example: cross-entropies of classes and regression errors.

Losses are computed in float32. The caller applies masks, weights and means;
masks must use `where`, because 0 * NaN is NaN.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Real
import numpy as np
import optax

from vit_jax.exceptions import UserError

# Class indices, or the k-hot or soft labels of every class.
Labels = Integer[Array, 'batch'] | Real[Array, 'batch classes']


def softmax_cross_entropy(
    logits: Float[Array, 'batch classes'], labels: Labels, *,
    label_smoothing: float = 0.0,
) -> Float[Array, 'batch']:
  """Returns -sum_c y_c log softmax(logits)_c for a class distribution y.

  Args:
    logits: of any floating type.
    labels: class indices, or one value per class, normalised if they sum to
      more than 1: k-hot labels become 1 / k each. The loss of an example
      without labels is 0.
    label_smoothing: y = (1 - s) y + s / classes (arXiv:1512.00567, sec. 7).

  Returns:
    The loss of each example; NaN for class indices outside [0, classes), so
    that wrong labels stop a run.
  """
  targets = _targets(labels, logits.shape, label_smoothing, distribution=True)
  loss = optax.softmax_cross_entropy(logits.astype(jnp.float32), targets)
  return _nan_where_unknown(loss, labels, logits.shape)


def sigmoid_cross_entropy(
    logits: Float[Array, 'batch classes'], labels: Labels, *,
    label_smoothing: float = 0.0,
) -> Float[Array, 'batch']:
  """Returns the sum of the binary cross-entropies of the classes.

    -sum_c y_c log sigmoid(logits_c) + (1 - y_c) log sigmoid(-logits_c)

  The sum over classes follows big_vision; torch's `BCEWithLogitsLoss` takes the
  mean.

  Args:
    logits: of any floating type.
    labels: class indices, or a probability per class (k-hot or soft).
    label_smoothing: y = (1 - s) y + s / classes, as for softmax and in timm.
      Keras smooths towards 1/2.

  Returns:
    The loss of each example; NaN for class indices outside [0, classes).
  """
  targets = _targets(labels, logits.shape, label_smoothing)
  losses = optax.sigmoid_binary_cross_entropy(
      logits.astype(jnp.float32), targets)
  return _nan_where_unknown(losses.sum(axis=-1), labels, logits.shape)


def label_weights(
    labels: Labels, weights: Float[np.ndarray, 'classes'],
) -> Float[Array, 'batch']:
  """Returns the class weight of each example, averaged for soft labels."""
  table = jnp.asarray(weights, jnp.float32)
  if labels.ndim == 1:
    labels = jax.nn.one_hot(labels, len(weights), dtype=jnp.float32)
  return labels.astype(jnp.float32) @ table


def _targets(
    labels: Labels, shape: tuple[int, ...], label_smoothing: float, *,
    distribution: bool = False,
) -> Float[Array, 'batch classes']:
  """Returns smoothed float32 labels [batch, classes] for logits of `shape`.

  With `distribution`, the values of an example that sum to more than 1 are
  normalised to sum 1.
  """
  if labels.shape not in (shape, shape[:1]):
    raise UserError(
        f'Labels of shape {labels.shape} do not fit logits of shape {shape}. '
        f'Give class indices {shape[:1]}, or a value per class {shape}.')
  if labels.ndim == 1:
    labels = jax.nn.one_hot(labels, shape[-1], dtype=jnp.float32)
  targets = labels.astype(jnp.float32)
  if not distribution:
    return optax.smooth_labels(targets, label_smoothing)
  total = targets.sum(axis=-1, keepdims=True)
  # The sum is less than 1 if a part of a mixed image has no labels.
  return jnp.minimum(total, 1) * optax.smooth_labels(
      targets / jnp.where(total > 0, total, 1), label_smoothing)


def _nan_where_unknown(
    loss: Float[Array, 'batch'], labels: Labels, shape: tuple[int, ...],
) -> Float[Array, 'batch']:
  # NaN in the targets would give padded rows a gradient of 0 * NaN.
  if labels.ndim == 2:
    return loss
  return jnp.where((labels >= 0) & (labels < shape[-1]), loss, jnp.nan)


def mean_error(
    predictions: Float[Array, 'batch targets'],
    labels: Float[Array, 'batch targets'], *, kind: str = 'mse',
) -> Float[Array, 'batch']:
  """Returns the mean error over the targets of each example.

    1 / targets * sum_t known_t error(prediction_t - label_t)

  Dividing by the number of all targets gives each known value the same weight.
  The loss of an example without known targets is 0.

  Args:
    predictions: of any floating type.
    labels: in the same units; NaN if unknown.
    kind: one of `ERRORS`.

  Returns:
    The loss of each example; NaN for NaN predictions of known targets.
  """
  known = ~jnp.isnan(labels)
  # Masked before the error, too: the gradient of 0 * NaN is NaN.
  labels = jnp.where(known, labels, 0).astype(jnp.float32)
  errors = ERRORS[kind](predictions.astype(jnp.float32), labels)
  return jnp.where(known, errors, 0).mean(axis=-1)


# Huber: error ** 2 / 2 up to 1, which is the standard deviation of standardised
# targets, and |error| - 1 / 2 above.
ERRORS: Mapping[str, Callable[..., Float[Array, 'batch targets']]] = {
    'mse': optax.squared_error,
    'mae': lambda predictions, labels: jnp.abs(predictions - labels),
    'huber': optax.huber_loss,
}
