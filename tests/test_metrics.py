"""Metrics: merging, padding and ties."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import metrics

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(40, 7)).astype(np.float32)
LABELS = RNG.integers(0, 7, size=40)


def mean(values, mask=None):
  mask = None if mask is None else jnp.asarray(mask)
  return metrics.Mean.from_model_output(jnp.asarray(values), mask)


# The mean.


@pytest.mark.parametrize('cuts', [(1,), (0, 5, 5, 39)])
def test_mean_does_not_depend_on_the_batches(cuts):
  values = RNG.normal(size=40).astype(np.float32)
  merged = metrics.Mean.empty()
  for part in np.split(values, cuts):
    merged = merged.merge(mean(part))
  assert merged.count == 40
  np.testing.assert_allclose(
      merged.compute(), values.astype(np.float64).mean(), rtol=1e-5)


@pytest.mark.parametrize('padding', [0.0, 1e30, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('dtype', [np.float32, np.int32, np.uint8, bool])
def test_padding_does_not_change_the_mean(padding, dtype):
  got = mean(np.array([1.0, 2.0, 6.0, padding, padding], np.float32),
             np.array([1, 1, 1, 0, 0], dtype))
  assert got.count == 3
  assert got.total == 9.0
  assert got.compute() == 3.0


def test_mean_without_examples_is_nan():
  nothing = mean(np.array([2.0], np.float32), np.array([0]))
  for got in (metrics.Mean.empty(), nothing):
    assert (got.total, got.count) == (0.0, 0)
    assert jnp.isnan(got.compute())


def test_bfloat16_values_are_summed_exactly():
  # In bfloat16 the sum would stop at 256.
  got = mean(jnp.ones(1_000, jnp.bfloat16))
  assert got.total == 1_000.0


# Top k.


@pytest.mark.parametrize('k', [1, 5, 7])
def test_top_k_equals_membership_in_the_sorted_first_k(k):
  order = np.argsort(-LOGITS, axis=-1, kind='stable')[:, :k]
  want = [label in row for label, row in zip(LABELS, order)]
  got = metrics.top_k_correct(jnp.asarray(LOGITS), jnp.asarray(LABELS), k=k)
  assert got.dtype == jnp.float32
  np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize('k', [1, 3])
def test_equal_logits_are_at_chance(k):
  # A head initialised with zeros must not score 100 %.
  got = metrics.top_k_correct(jnp.zeros((10, 10)), jnp.arange(10), k=k)
  assert got.sum() == k
  np.testing.assert_array_equal(got[:k], np.ones(k))


# The argmax of NaN is 0, which must not count as class 0.
WITH_NAN = [[np.nan] * 3, [1.0, 0.0, 0.0]]


@pytest.mark.parametrize(('logits', 'labels', 'by_k'), [
    ([[1.0, 2.0, 0.0], [0.0, 0.0, 1.0]], [[0.7, 0.3, 0.0], [0.2, 0.3, 0.5]],
     {1: [0, 1], 2: [1, 1]}),
    (WITH_NAN, [0, 0], {1: [0, 1], 3: [0, 1]}),
    (np.eye(3), [-1, 3, 2], {3: [0, 0, 1]})], ids=['soft', 'nan', 'unknown'])
def test_soft_labels_have_their_highest_class_and_nan_and_unknown_are_wrong(
    logits, labels, by_k):
  for k, expected in by_k.items():
    np.testing.assert_array_equal(metrics.top_k_correct(
        jnp.asarray(logits), jnp.asarray(labels), k=k), expected)


@pytest.mark.parametrize('k', [0, 4])
def test_k_beyond_the_classes_is_an_error(k):
  with pytest.raises(ValueError, match=re.escape(
      f'Top-{k} accuracy needs k from 1 to the number of classes, which is 3. '
      'Leave this metric out.')):
    metrics.top_k_correct(jnp.eye(3), jnp.arange(3), k=k)


# Labels with several classes.


def test_precision_at_1_checks_the_top_class():
  logits = jnp.array([[3.0, 1.0, 2.0]] * 4)
  khot = jnp.array([[1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 1]], jnp.uint8)
  np.testing.assert_array_equal(
      metrics.precision_at_1(logits, khot), [1.0, 0.0, 0.0, 1.0])
  np.testing.assert_array_equal(metrics.precision_at_1(
      jnp.asarray(WITH_NAN), jnp.array([[1, 1, 1], [1, 0, 0]])), [0.0, 1.0])
