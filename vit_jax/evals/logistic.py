"""Multinomial logistic regression: a linear probe of frozen features."""

from jaxtyping import Bool, Float, Float64, Int
import numpy as np
from scipy import optimize
from scipy import special

# Relative to the mean loss; the strongest first, so that ties go to it.
PENALTIES = tuple(10.0 ** i for i in range(1, -6, -1))
_MAX_ITERATIONS = 200


def fit_selected(
    x: Float64[np.ndarray, 'examples width'],
    labels: Int[np.ndarray, 'examples'], *,
    held_out: Bool[np.ndarray, 'examples'], num_classes: int, constant: float,
) -> Float64[np.ndarray, 'width classes']:
  """Returns the regression with the penalty that is best on held-out examples.

  After the selection by loss, all examples are fitted. Without held-out
  examples, the penalty is the strongest.

  Args:
    x: standardised features, whose last column is constant.
    labels: their classes.
    held_out: examples for the selection.
    num_classes: number of classes.
    constant: value of the last column, whose weight has no penalty.
  """
  # Of 1 while it is fitted: a large value would slow down the optimisation.
  scale = np.append(np.ones(x.shape[1] - 1), 1 / constant)
  x = x * scale
  targets = np.eye(num_classes)[labels]

  def loss(penalty: float) -> float:
    weights = fit(x[~held_out], targets[~held_out], penalty=penalty)
    logits = x[held_out] @ weights
    return -float((special.log_softmax(logits, 1) * targets[held_out]).sum())

  penalty = min(PENALTIES, key=loss) if held_out.any() else PENALTIES[0]
  return fit(x, targets, penalty=penalty) * scale[:, None]


def fit(
    x: Float64[np.ndarray, 'examples width'],
    targets: Float[np.ndarray, 'examples classes'], *, penalty: float,
) -> Float64[np.ndarray, 'width classes']:
  """Returns argmin_w mean cross-entropy(x w, targets) + penalty / 2 |w|^2.

  The last row of w, the bias, is not penalised.
  """
  shape = x.shape[1], targets.shape[1]

  def value_and_gradient(
      flat: Float64[np.ndarray, 'weights'],
  ) -> tuple[float, Float64[np.ndarray, 'weights']]:
    weights = flat.reshape(shape)
    log_probs = special.log_softmax(x @ weights, axis=1)
    shrunk = penalty * weights
    shrunk[-1] = 0
    gradient = x.T @ (np.exp(log_probs) - targets) / len(x) + shrunk
    return (-(targets * log_probs).sum() / len(x)
            + (shrunk * weights).sum() / 2), gradient.ravel()

  return optimize.minimize(
      value_and_gradient, np.zeros(np.prod(shape)), jac=True,
      method='L-BFGS-B', options={'maxiter': _MAX_ITERATIONS}).x.reshape(shape)
