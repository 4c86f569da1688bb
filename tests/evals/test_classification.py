"""Evaluation: each example once, whatever the batches and the devices."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import evals
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

EXAMPLES, CLASSES = 10, 7
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(EXAMPLES, CLASSES)).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, EXAMPLES)
PARAMS = {'scale': jnp.float32(2.0)}


def predict(params, batch):
  return {'logits': batch['image'] * params['scale']}


def batches(size, *, garbage=0.0, labels=LABELS, order=None):
  """Cuts the examples into batches; the last is padded with `garbage`."""
  order = np.arange(EXAMPLES) if order is None else order

  def generate():
    for start in range(0, len(order), size):
      rows = order[start:start + size]
      short = size - len(rows)
      yield {
          'image': jnp.asarray(np.concatenate(
              [IMAGES[rows], np.full((short, CLASSES), garbage, np.float32)])),
          'label': jnp.asarray(np.concatenate(
              [labels[rows], np.zeros((short, *labels.shape[1:]), int)])),
          'mask': jnp.asarray([1.0] * len(rows) + [0.0] * short)}
  return generate


def loss(logits, labels):
  if labels.ndim == 2:
    return optax.sigmoid_binary_cross_entropy(
        logits, labels.astype(jnp.float32)).sum(-1)
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def build(generate, *, num_examples=EXAMPLES, multi_label=False, **section):
  split = evals.Split(
      name='toy test', batches=generate, num_examples=num_examples,
      num_classes=CLASSES, multi_label=multi_label)
  return evals.build(evals.parse({'test': section})['test'], evals.Context(
      where='evals.test', predict=predict, objective=loss, loss=loss,
      activation='softmax', num_classes=CLASSES, train_name='toy',
      open=lambda split_string, source, **options: split))


def test_metrics_are_the_means_over_the_examples():
  logits = 2.0 * IMAGES.astype(np.float64)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  ranks = (logits > logits[np.arange(EXAMPLES), LABELS][:, None]).sum(-1)
  got = build(batches(5))(PARAMS)
  assert got == pytest.approx({
      'loss': -log_p[np.arange(EXAMPLES), LABELS].mean(),
      'accuracy': (ranks < 1).mean(), 'accuracy_top_5': (ranks < 5).mean(),
      'examples': EXAMPLES}, rel=1e-5)
  assert got['accuracy'] < got['accuracy_top_5'] < 1


def test_several_labels_measure_precision_at_1():
  khot = RNG.integers(0, 2, (EXAMPLES, CLASSES))
  got = build(batches(4, labels=khot), multi_label=True)(PARAMS)
  assert set(got) == {'loss', 'precision_at_1', 'examples'}
  hits = khot[np.arange(EXAMPLES), IMAGES.argmax(-1)]
  assert got['precision_at_1'] == pytest.approx(hits.mean())
  assert 0 < hits.mean() < 1


@pytest.mark.parametrize('leave_out', [False, True])
def test_examples_without_a_label_count_as_wrong_or_not_at_all(leave_out):
  khot = RNG.integers(0, 2, (EXAMPLES, CLASSES))
  khot[:, 0] = 1
  khot[[2, 5, 9]] = 0
  got = build(batches(4, labels=khot), multi_label=True,
              leave_out_unlabelled=leave_out)(PARAMS)
  hits = khot[np.arange(EXAMPLES), IMAGES.argmax(-1)].sum()
  assert got['examples'] == EXAMPLES - 3 * leave_out
  assert got['precision_at_1'] == pytest.approx(hits / got['examples'])


@pytest.mark.parametrize('size', [1, 3, 4, 10, 16])
@pytest.mark.parametrize('garbage', [0.0, 1e30, np.nan])
def test_batch_size_and_padding_change_nothing(size, garbage):
  want = build(batches(5))(PARAMS)
  got = build(batches(size, garbage=garbage))(PARAMS)
  assert got == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize('order', [
    np.arange(EXAMPLES - 1), np.r_[np.arange(EXAMPLES), 0]])
def test_lost_or_repeated_example_is_an_error(order):
  with pytest.raises(RuntimeError, match=re.escape(
      f'The evaluation counted {len(order)} examples, but its split has '
      f'{EXAMPLES}: the input pipeline lost or repeated some.')):
    build(batches(4, order=order))(PARAMS)


def test_split_without_examples_is_an_error():
  with pytest.raises(ValueError, match='has no examples'):
    build(lambda: iter([]), num_examples=0)(PARAMS)


def test_few_classes_have_no_top_5():
  small = build(lambda: iter([{
      'image': jnp.asarray(IMAGES[:, :5]), 'label': jnp.asarray(LABELS % 5),
      'mask': jnp.ones(EXAMPLES)}]))(PARAMS)
  assert set(small) == {'loss', 'accuracy', 'examples'}


def test_split_is_opened_anew_for_each_evaluation():
  evaluate = build(batches(4))
  first = evaluate(PARAMS)
  assert evaluate(PARAMS) == first
  assert evaluate({'scale': jnp.float32(-1.0)})['loss'] != first['loss']


def test_between_is_called_after_each_batch_and_cuts_off():
  calls = []

  class Stop(Exception):
    pass

  def between():
    calls.append(None)
    if len(calls) == 2:
      raise Stop

  evaluate = build(batches(2))
  with pytest.raises(Stop):
    evaluate(PARAMS, on_batch=between)
  assert len(calls) == 2
  calls.clear()
  evaluate(PARAMS, on_batch=lambda: calls.append(None))
  assert len(calls) == 5


@pytest.mark.parametrize('sections, words', [
    ({'val': {'splt': 'test'}}, 'split'),
    ({'val': {'name': 'clasification'}}, 'classification'),
])
def test_mistakes_are_named_with_the_evaluator(sections, words):
  with pytest.raises(ValueError, match=words) as caught:
    evals.parse(sections)
  assert 'evals.val' in str(caught.value)


def build_experiment(devices, *, batch_size, **change):
  config = config_lib.resolve({
      'total': {'steps': 1}, 'batch_size': 8,
      'model': {'width': 16, 'depth': 1, 'mlp_dim': 16, 'num_heads': 2,
                'patch': 4, 'dropout': 0.5},
      'data': {'source': 'digits', 'resolution': 8},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                    'schedule': {'name': 'constant'}},
      'evals': {'val': {'split': 'test[:50]', 'batch_size': batch_size}},
      **change})
  experiment_lib.build(config, devices=jax.devices()[:devices])


def test_batch_that_does_not_divide_names_the_evaluator():
  with pytest.raises(ValueError, match=re.escape(
      'evals.val.batch_size 12 does not divide over 8 devices')):
    build_experiment(8, batch_size=12)


def test_other_number_of_classes_is_an_error():
  with pytest.raises(
      ValueError, match='evals.val: shapes.* classes, but the model is trained '
      'on digits.* with 10.'):
    build_experiment(1, batch_size=8, evals={'val': {'source': 'shapes'}})
