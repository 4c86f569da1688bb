"""What logits say: the likeliest classes by name, or numbers."""

import numpy as np
import pytest

from vit_jax.inference import predictions

LOGITS = np.log([[1, 4, 3, 2]])


def test_the_likeliest_classes_come_first():
  got, = predictions.likeliest(
      LOGITS, labels='abcd', activation='softmax', top_k=3)
  assert (got.names, got.classes) == (('b', 'c', 'd'), (1, 2, 3))
  np.testing.assert_allclose(got.probabilities, [0.4, 0.3, 0.2], rtol=1e-5)


def test_there_are_no_more_classes_than_the_model_has():
  got, = predictions.likeliest(
      LOGITS, labels='abcd', activation='sigmoid', top_k=9)
  assert got.names == ('b', 'c', 'd', 'a')
  np.testing.assert_allclose(
      got.probabilities, [4 / 5, 3 / 4, 2 / 3, 1 / 2], rtol=1e-5)


def test_without_a_name_a_class_or_a_target_is_its_number():
  got, = predictions.likeliest(
      LOGITS, labels='ab', activation='softmax', top_k=2)
  assert got.names == ('b', 'class 2')
  assert predictions.estimates(LOGITS[:, :2], labels=()) == [
      predictions.Estimate(('target 0', 'target 1'), tuple(LOGITS[0, :2]))]


@pytest.mark.parametrize(('asked', 'words'), [
    ({'top_k': 0}, 'top_k must be at least 1'),
    ({'activation': 'sigmoit'}, "Did you mean 'sigmoid'")])
def test_what_cannot_be_asked_is_said(asked, words):
  with pytest.raises(ValueError, match=words):
    predictions.likeliest(LOGITS, labels=(), **{
        'activation': 'softmax', 'top_k': 5, **asked})
