"""Conversion of outputs to named classes and numbers."""

import numpy as np
import pytest

from vit_jax.inference import predictions

LOGITS = np.log([[1, 4, 3, 2]])


@pytest.mark.parametrize(('activation', 'top_k', 'expected'), [
    ('softmax', 3, {'b': 0.4, 'c': 0.3, 'd': 0.2}),
    ('sigmoid', 9, {'b': 4 / 5, 'c': 3 / 4, 'd': 2 / 3, 'a': 1 / 2})])
def test_classes_are_in_descending_order(activation, top_k, expected):
  result, = predictions.top_classes(
      LOGITS, labels='abcd', activation=activation, top_k=top_k)
  assert result.names == tuple(expected)
  assert result.classes == tuple(map('abcd'.index, expected))
  np.testing.assert_allclose(
      result.probabilities, list(expected.values()), rtol=1e-5)


def test_unnamed_classes_and_targets_are_numbered():
  result, = predictions.top_classes(
      LOGITS, labels='ab', activation='softmax', top_k=2)
  assert result.names == ('b', 'class 2')
  assert predictions.estimates(LOGITS[:, :2], labels=()) == [
      predictions.Estimate(('target 0', 'target 1'), tuple(LOGITS[0, :2]))]
