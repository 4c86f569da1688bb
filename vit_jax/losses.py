"""Losses: logits and labels to one number per example.

Of classes, cross-entropies; of numbers to predict, errors.

Each computes in float32 whatever the logits' type, and returns a value per
example, so that masks, weights and means stay with the caller. A mask is
applied with `where`, never by multiplication: 0 * NaN is NaN.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Real
import numpy as np
import optax

# Class indices, or the k-hot or soft labels of every class.
Labels = Integer[Array, 'batch'] | Real[Array, 'batch classes']


def softmax_cross_entropy(
    logits: Float[Array, 'batch classes'], labels: Labels, *,
    label_smoothing: float = 0.0,
) -> Float[Array, 'batch']:
  """Returns -sum_c y_c log softmax(logits)_c, for a distribution y of classes.

  Args:
    logits: of any floating type.
    labels: class indices, or a value per class, which is divided by its sum
      over the classes: k-hot labels become 1 / k each, so that an example
      weighs the same however many it has, and the loss is least where the
      probability is shared among them; a distribution (a class index that was
      mixed with another) stays what it is. An example without any label has
      nothing to teach: its loss is 0.
    label_smoothing: mixes this much of the uniform distribution into the
      labels, y = (1 - s) y + s / classes (Szegedy et al., arXiv:1512.00567,
      sec. 7).

  Returns:
    The loss of each example; NaN where a class index is not in
    [0, classes), so that a wrong label stops a run rather than teaching it.
  """
  targets = _targets(labels, logits.shape, label_smoothing, distribution=True)
  loss = optax.softmax_cross_entropy(logits.astype(jnp.float32), targets)
  return _nan_where_unknown(loss, labels, logits.shape)


def sigmoid_cross_entropy(
    logits: Float[Array, 'batch classes'], labels: Labels, *,
    label_smoothing: float = 0.0,
) -> Float[Array, 'batch']:
  """Returns the binary cross entropies of the classes, each true or not.

    -sum_c y_c log sigmoid(logits_c) + (1 - y_c) log sigmoid(-logits_c)

  The sum over classes, not their mean, as in big_vision (torch's
  `BCEWithLogitsLoss` takes the mean, a loss smaller by the number of classes).

  Args:
    logits: of any floating type.
    labels: class indices, taken as one-hot, or a probability for every class
      (k-hot or soft).
    label_smoothing: y = (1 - s) y + s / classes, as for softmax (so does timm).
      Keras smooths towards 1/2 instead, which with a thousand classes would
      ask for hundreds of them at once.

  Returns:
    The loss of each example; NaN where a class index is not in [0, classes).
  """
  targets = _targets(labels, logits.shape, label_smoothing)
  losses = optax.sigmoid_binary_cross_entropy(
      logits.astype(jnp.float32), targets)
  return _nan_where_unknown(losses.sum(axis=-1), labels, logits.shape)


def label_weights(
    labels: Labels, weights: Float[np.ndarray, 'classes'],
) -> Float[Array, 'batch']:
  """Returns the weight of each example's class; of a mixed label, their mean.

  Args:
    labels: class indices, or a distribution over the classes.
    weights: of the classes.
  """
  table = jnp.asarray(weights, jnp.float32)
  if labels.ndim == 1:
    labels = jax.nn.one_hot(labels, len(weights), dtype=jnp.float32)
  return labels.astype(jnp.float32) @ table


def _targets(
    labels: Labels, shape: tuple[int, ...], label_smoothing: float, *,
    distribution: bool = False,
) -> Float[Array, 'batch classes']:
  """Returns labels as a float32 value for every class, smoothed.

  Args:
    labels: class indices, or a value per class.
    shape: of the logits.
    label_smoothing: share of the uniform distribution.
    distribution: divides each example's values by their sum, if it has any.
  """
  if not 0.0 <= label_smoothing < 1.0:
    raise ValueError(
        'label_smoothing must be at least 0 and below 1, but is '
        f'{label_smoothing}.')
  if labels.shape not in (shape, shape[:1]):
    raise ValueError(
        f'Labels of shape {labels.shape} do not fit logits of shape {shape}. '
        f'Give class indices {shape[:1]}, or a value per class {shape}.')
  if labels.ndim == 1:
    labels = jax.nn.one_hot(labels, shape[-1], dtype=jnp.float32)
  targets = labels.astype(jnp.float32)
  if not distribution:
    return optax.smooth_labels(targets, label_smoothing)
  total = targets.sum(axis=-1, keepdims=True)
  # Where there is no label the sum is 0, and so is what is divided by it.
  smooth = optax.smooth_labels(
      targets / jnp.where(total > 0, total, 1), label_smoothing)
  return jnp.where(total > 0, smooth, 0)


def _nan_where_unknown(
    loss: Float[Array, 'batch'], labels: Labels, shape: tuple[int, ...],
) -> Float[Array, 'batch']:
  # Afterwards, not in the targets: there, the gradient of a padded row with
  # such a label would be 0 * NaN, and spread to every parameter.
  if labels.ndim == 2:
    return loss
  return jnp.where((labels >= 0) & (labels < shape[-1]), loss, jnp.nan)


def mean_error(
    predictions: Float[Array, 'batch targets'],
    labels: Float[Array, 'batch targets'], *, kind: str = 'mse',
) -> Float[Array, 'batch']:
  """Returns the mean error of an example's targets, of those that are known.

    1 / targets * sum_t known_t error(prediction_t - label_t)

  The mean is over all targets, known or not, so that each known value weighs
  the same, whatever else is known of its example. One of which nothing is known
  has nothing to teach: its loss is 0.

  Args:
    predictions: of any floating type.
    labels: in the same units; NaN where they are not known.
    kind: one of `ERRORS`.

  Returns:
    The loss of each example; NaN where a prediction of what is known is NaN.
  """
  known = ~jnp.isnan(labels)
  # Inside, too: the gradient of 0 * NaN would spread.
  labels = jnp.where(known, labels, 0).astype(jnp.float32)
  errors = ERRORS[kind](predictions.astype(jnp.float32), labels)
  return jnp.where(known, errors, 0).mean(axis=-1)


def _absolute_error(
    predictions: Float[Array, 'batch targets'],
    labels: Float[Array, 'batch targets'],
) -> Float[Array, 'batch targets']:
  return jnp.abs(predictions - labels)


# Of huber, an error beyond 1 counts as |error| - 1 / 2, a smaller one as
# error ** 2 / 2 (Huber, 1964): of standardised targets, 1 is their deviation.
ERRORS: Mapping[str, Callable[..., Float[Array, 'batch targets']]] = {
    'mse': optax.squared_error,
    'mae': _absolute_error,
    'huber': optax.huber_loss,
}
