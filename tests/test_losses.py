"""Losses against formulas in float64 NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import losses

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(6, 5)) * 3
INDICES = np.array([0, 4, 2, 2, 1, 3])
ONE_HOT = np.eye(5)[INDICES]
SOFT = RNG.dirichlet(np.ones(5), size=6)
KHOT = (RNG.random((6, 5)) < 0.4).astype(np.float64)

LOSSES = (losses.softmax_cross_entropy, losses.sigmoid_cross_entropy)


def softmax_formula(logits, targets):
  probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  return -(targets * np.log(probabilities)).sum(-1)


def distribution(targets):
  """Returns each row divided by its sum; a row of zeros as it is."""
  return targets / np.maximum(targets.sum(-1, keepdims=True), 1e-300)


def sigmoid_formula(logits, targets):
  p = 1 / (1 + np.exp(-logits))
  return -(targets * np.log(p) + (1 - targets) * np.log(1 - p)).sum(-1)


FORMULAS = dict(zip(LOSSES, (softmax_formula, sigmoid_formula)))


def f32(values):
  return jnp.asarray(values, jnp.float32)


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('labels', [
    f32(ONE_HOT), f32(SOFT), f32(KHOT), jnp.asarray(INDICES, jnp.int32),
    jnp.asarray(INDICES, jnp.uint8)], ids=[
        'one-hot', 'soft', 'k-hot', 'int32', 'uint8'])
@pytest.mark.parametrize('smoothing', [0.0, 0.1])
def test_loss_of_labels_is_the_formula(loss, labels, smoothing):
  got = loss(f32(LOGITS), labels, label_smoothing=smoothing)
  targets = ONE_HOT if labels.ndim == 1 else np.asarray(labels, np.float64)
  any_label = 1
  if loss is losses.softmax_cross_entropy:
    any_label = targets.any(-1, keepdims=True)
    targets = distribution(targets)
  smooth = ((1 - smoothing) * targets + smoothing / 5) * any_label
  np.testing.assert_allclose(got, FORMULAS[loss](LOGITS, smooth), rtol=1e-5)


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('wrong', [-1, 5, 1000])
def test_unknown_class_gives_nan_in_its_row_only(loss, wrong):
  labels = jnp.asarray(INDICES).at[1].set(wrong)
  got = loss(f32(LOGITS), labels, label_smoothing=0.1)
  np.testing.assert_array_equal(
      jnp.isnan(got), [False, True, False, False, False, False])


@pytest.mark.parametrize('loss', LOSSES)
def test_masked_row_with_a_wrong_label_leaves_no_gradient(loss):
  mask = jnp.array([1, 0, 1, 1, 1, 1])
  labels = jnp.asarray(INDICES).at[1].set(-1)
  grad = jax.grad(lambda x: jnp.where(mask, loss(x, labels), 0.0).sum())(
      f32(LOGITS))
  assert jnp.isfinite(grad).all()
  np.testing.assert_array_equal(grad[1], np.zeros(5))
  assert (grad[0] != 0).any()


@pytest.mark.parametrize('kind, error', [
    ('mse', lambda e: e**2), ('mae', abs),
    ('huber', lambda e: e**2 / 2 if abs(e) < 1 else abs(e) - 0.5)])
def test_regression_errors_follow_the_formulas_and_ignore_unknown_targets(
    kind, error):
  answers = np.array([[0.5, -3.0], [2.0, 1.0], [0.0, 9.0]], np.float32)
  labels = np.array([[0.0, 1.0], [np.nan, 1.25], [np.nan, np.nan]], np.float32)
  function = functools.partial(losses.mean_error, kind=kind)
  found = function(jnp.asarray(answers), jnp.asarray(labels))
  want = [(error(0.5) + error(-4.0)) / 2, error(-0.25) / 2, 0]
  np.testing.assert_allclose(found, want, rtol=1e-6)
  gradient = jax.grad(lambda x: function(x, jnp.asarray(labels)).sum())(
      jnp.asarray(answers))
  assert np.isfinite(gradient).all()
  np.testing.assert_array_equal(gradient[np.isnan(labels)], 0)
  assert np.isnan(function(
      jnp.full((1, 2), jnp.nan), jnp.asarray(labels[:1])))[0]


def test_weight_of_soft_labels_is_the_mean_over_classes():
  weights = np.array([0.5, 2.0, 4.0], np.float32)
  np.testing.assert_array_equal(
      losses.label_weights(jnp.array([2, 0]), weights), [4, 0.5])
  np.testing.assert_allclose(losses.label_weights(
      jnp.array([[0.25, 0.75, 0.0]]), weights), [1.625])


def test_a_part_of_a_mixed_image_without_labels_has_no_loss():
  whole, part = (losses.softmax_cross_entropy(
      jnp.zeros((1, 3)), jnp.array([[0, share, 0]]), label_smoothing=0.1)
                 for share in (1.0, 0.7))
  np.testing.assert_allclose(part, 0.7 * whole, rtol=1e-6)
