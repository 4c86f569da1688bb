"""Calibration and confusion, by hand and by scikit-learn."""

import numpy as np
import pytest
from scipy import special
from sklearn import metrics as sklearn_metrics

from tests import random_logits
from vit_jax.extras.diagnostics import confusion

EXAMPLES = random_logits.EXAMPLES
CLASSES = random_logits.CLASSES
LABELS = random_logits.LABELS
LOGITS = random_logits.LOGITS
KHOT = random_logits.KHOT


@pytest.mark.parametrize('bins', [1, 15])
def test_calibration_error_is_the_weighted_sum_over_bins(toy, bins):
  got = toy({'name': 'calibration', 'bins': bins}, toy.split(
      LOGITS, LABELS))(toy.params)
  p = special.softmax(LOGITS.astype(np.float64), axis=-1)
  confidence, right = p.max(-1), p.argmax(-1) == LABELS
  error, gaps = 0.0, []
  for low, high in zip(np.arange(bins) / bins, np.arange(1, bins + 1) / bins):
    inside = (confidence > low) & (confidence <= high)
    if inside.any():
      gaps.append(abs(right[inside].mean() - confidence[inside].mean()))
      error += inside.mean() * gaps[-1]
  assert got.metrics == {
      'calibration_error': pytest.approx(error, rel=1e-5),
      'calibration_error_max': pytest.approx(max(gaps), rel=1e-5),
      'brier': pytest.approx(
          np.square(p - np.eye(CLASSES)[LABELS]).sum(-1).mean(), rel=1e-5),
      'loss': pytest.approx(sklearn_metrics.log_loss(
          LABELS, p, labels=range(CLASSES)), rel=1e-5),
      'examples': EXAMPLES}
  assert got.tables['reliability'][:, 0].sum() == EXAMPLES


def test_sigmoid_confidence_is_that_of_the_predicted_class(toy):
  got = toy({'name': 'calibration', 'bins': 1}, toy.split(LOGITS, KHOT),
            activation='sigmoid')(toy.params)
  _, confidence, right = got.tables['reliability'][0]
  assert confidence == pytest.approx(
      (1 / (1 + np.exp(-LOGITS.max(-1)))).mean(), rel=1e-5)
  assert right == pytest.approx(
      KHOT[np.arange(EXAMPLES), LOGITS.argmax(-1)].mean())


def test_confusion_matrix_agrees_with_scikit_learn(toy):
  got = toy({'name': 'confusion'}, toy.split(
      LOGITS, LABELS, class_names=tuple('abcdef')))(toy.params)
  want = sklearn_metrics.confusion_matrix(
      LABELS, LOGITS.argmax(-1), labels=range(CLASSES))
  np.testing.assert_array_equal(got.tables['confusion'], want)
  recall = sklearn_metrics.recall_score(
      LABELS, LOGITS.argmax(-1), labels=range(CLASSES - 1), average=None)
  np.testing.assert_allclose(got.tables['class_accuracy'], [*recall, np.nan])
  assert got.metrics == {
      'accuracy': pytest.approx((LOGITS.argmax(-1) == LABELS).mean()),
      'accuracy_class_mean': pytest.approx(recall.mean()),
      'accuracy_class_worst': pytest.approx(recall.min()),
      'f1_class_mean': pytest.approx(sklearn_metrics.f1_score(
          LABELS, LOGITS.argmax(-1), average='macro')),
      'examples': EXAMPLES}
  np.testing.assert_allclose(
      np.nan_to_num(got.tables['class_precision']),
      sklearn_metrics.precision_score(
          LABELS, LOGITS.argmax(-1), labels=range(CLASSES), average=None,
          zero_division=0))
  pairs = [(int(m.read()[0].argmax()), m.label) for m in got.mistakes]
  assert [m.prediction for m in got.mistakes] == [p for p, _ in pairs]
  assert all(prediction != label for prediction, label in pairs)
  shares = [m.confidence for m in got.mistakes]
  assert shares == sorted(shares, reverse=True)
  assert len(shares) == min(24, (LOGITS.argmax(-1) != LABELS).sum())
  assert got.class_names == tuple('abcdef')


def test_the_images_of_largest_loss_are_named_in_order(toy):
  split = toy.split(LOGITS, LABELS, class_names=tuple('abcdef'))
  got = toy({'name': 'confusion'}, split)(toy.params)
  losses = -(LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True)))[
      np.arange(EXAMPLES), LABELS]
  order = np.argsort(-losses)[:100]
  np.testing.assert_allclose(got.tables['loss_value'], losses[order], rtol=1e-5)
  source = split.dataset.source
  assert got.tables['loss_image'].tolist() == [
      source.key(int(i)) for i in order]
  np.testing.assert_array_equal(got.tables['loss_label'], LABELS[order])
  np.testing.assert_array_equal(
      got.tables['loss_prediction'], LOGITS.argmax(-1)[order])
  _, rows = dict(got.details)['Largest losses']
  assert [row[1] for row in rows] == ['abcdef'[LABELS[i]] for i in order[:5]]


def test_the_most_frequent_confusions_are_named():
  names = 'cat', 'dog', 'eel'
  _, rows = confusion.most_frequent(
      np.asarray([[8, 0, 2], [5, 5, 0], [0, 0, 9]]), names)
  assert rows == [['dog', 'cat', 5, 10], ['cat', 'eel', 2, 10]]
  assert confusion.most_frequent(np.eye(3, dtype=int), names)[1] == []


def test_nan_logits_have_no_class(toy):
  broken = LOGITS.copy()
  broken[[4, 9], 3] = np.nan
  with pytest.raises(
      ValueError, match='logits of 2 examples of toy test are NaN'):
    toy({'name': 'confusion'}, toy.split(broken, LABELS))(toy.params)


def test_several_labels_have_no_confusion_matrix(toy):
  with pytest.raises(ValueError, match='evals.test needs one label per image'):
    toy({'name': 'confusion'}, toy.split(
        LOGITS, np.eye(CLASSES)[LABELS].astype(np.float32)))
