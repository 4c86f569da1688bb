"""The calibration error, compared with a sum over bins by hand."""

import numpy as np
import pytest
from scipy import special
from sklearn import metrics as sklearn_metrics

from tests import random_logits

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
