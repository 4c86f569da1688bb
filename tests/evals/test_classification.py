"""Loss and accuracy, and rules that hold for passes over any split."""

import numpy as np
import pytest

EXAMPLES, CLASSES = 10, 7
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(EXAMPLES, CLASSES)).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, EXAMPLES)


def evaluate(toy, images=IMAGES, labels=LABELS, *, section=None, **split):
  evaluator = toy({'name': 'classification', **(section or {})},
                  toy.split(images, labels, num_classes=CLASSES, **split))
  return evaluator(toy.params).metrics


def test_metrics_are_means_over_the_examples(toy):
  logits = IMAGES.astype(np.float64)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  ranks = (logits > logits[np.arange(EXAMPLES), LABELS][:, None]).sum(-1)
  result = evaluate(toy)
  assert result == pytest.approx({
      'loss': -log_p[np.arange(EXAMPLES), LABELS].mean(),
      'accuracy': (ranks < 1).mean(), 'accuracy_top_5': (ranks < 5).mean(),
      'examples': EXAMPLES}, rel=1e-5)
  assert result['accuracy'] < result['accuracy_top_5'] < 1


@pytest.mark.parametrize(('size', 'garbage'), [
    (1, 0.0), (3, np.nan), (4, 1e30), (16, np.nan)])
def test_batch_size_and_padding_do_not_change_metrics(toy, size, garbage):
  assert evaluate(toy, size=size, garbage=garbage) == pytest.approx(
      evaluate(toy, size=5), rel=1e-5)


def test_up_to_5_classes_have_no_top_5_accuracy(toy):
  result = toy({'name': 'classification'}, toy.split(
      IMAGES[:, :5], LABELS % 5))(toy.params).metrics
  assert set(result) == {'loss', 'accuracy', 'examples'}
