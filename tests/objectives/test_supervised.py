"""Supervised objectives."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import data
from vit_jax import objectives
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.objectives import supervised

LABELS = jnp.array([2, 0, 1, 2])
KHOT = jnp.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]], jnp.uint8)


class Linear(nn.Module):
  """A model of three classes; adds noise in training alone."""

  @nn.compact
  def __call__(self, images, *, train=False):
    logits = nn.Dense(3)(images.reshape(images.shape[0], -1))
    if train:
      logits += jax.random.normal(self.make_rng('dropout'), logits.shape)
    return {'logits': logits}


IMAGES = jnp.asarray(
    np.random.default_rng(0).normal(size=(4, 2, 2, 3)), jnp.float32)
PARAMS = Linear().init(jax.random.key(0), IMAGES)['params']
KEY = jax.random.key(5)


def logits(key=KEY):
  return Linear().apply(
      {'params': PARAMS}, IMAGES, train=True, rngs={'dropout': key})['logits']


def measure(section, labels, *, multi_label=False, key=KEY, **facts):
  objective = objectives.parse(section).build(objectives.Context(
      Linear(), data.Metadata(num_classes=3, multi_label=multi_label),
      value_scale=value_scale_lib.ValueScale(0.0, 1.0), **facts))
  return objective, objective(
      PARAMS, {'image': IMAGES, 'label': labels, 'mask': jnp.ones(4)}, key)


@pytest.mark.parametrize(('section', 'labels', 'want', 'name', 'correct'), [
    ({}, LABELS,
     lambda x: optax.softmax_cross_entropy_with_integer_labels(x, LABELS),
     'accuracy', lambda best: best == LABELS),
    ({'loss': 'sigmoid'}, KHOT, lambda x: optax.sigmoid_binary_cross_entropy(
        x, KHOT.astype(jnp.float32)).sum(-1),
     'precision_at_1', lambda best: KHOT[jnp.arange(4), best] > 0)],
    ids=['softmax', 'sigmoid'])
def test_loss_and_accuracy_of_each_example(
    section, labels, want, name, correct):
  objective, (loss, measures) = measure(
      section, labels, multi_label=labels is KHOT)
  np.testing.assert_allclose(loss, want(logits()), rtol=1e-5)
  assert tuple(objective.metrics) == tuple(measures) == (name,)
  np.testing.assert_array_equal(measures[name], correct(logits().argmax(-1)))


def test_model_is_applied_in_training_mode_with_the_key():
  _, (one, _) = measure({}, LABELS)
  _, (two, _) = measure({}, LABELS, key=jax.random.key(6))
  _, (again, _) = measure({}, LABELS)
  np.testing.assert_array_equal(one, again)
  assert (one != two).all()


def class_weights(weights_or_rule, counts=(6, 3, 1)):
  return supervised.class_weights(
      objectives.parse({'class_weights': weights_or_rule}), np.array(counts))


@pytest.mark.parametrize('weights_or_rule, ratios', [
    ('inverse', [1 / 6, 1 / 3, 1]),
    ('inverse_sqrt', [6**-0.5, 3**-0.5, 1]), ((1.0, 2.0, 0.0), [1, 2, 0])])
def test_class_weights_have_mean_1_over_the_examples(weights_or_rule, ratios):
  weights = class_weights(weights_or_rule)
  assert np.dot(weights, [6, 3, 1]) / 10 == pytest.approx(1)
  np.testing.assert_allclose(weights * ratios[0], weights[0] * np.array(ratios))


def test_loss_is_multiplied_by_the_weight_of_the_class():
  weights = class_weights('inverse')
  _, (plain, _) = measure({}, LABELS)
  _, (loss, measures) = measure(
      {'class_weights': 'inverse'}, LABELS,
      class_counts=lambda: np.array([6, 3, 1]))
  np.testing.assert_allclose(loss, plain * weights[LABELS], rtol=1e-6)
  assert tuple(measures) == ('accuracy',)


@pytest.mark.parametrize(('labels', 'loss'), [
    ({}, 'softmax'), ({'multi_label': True}, 'sigmoid'),
    ({'targets': ('age',)}, 'mse')])
def test_the_default_loss_suits_the_labels(labels, loss):
  config = objectives.parse({}).resolve(data.Metadata(num_classes=1, **labels))
  assert config.loss == loss


@pytest.mark.parametrize('section, facts, words', [
    ({'loss': 'softmax'}, {'targets': ('age',)}, 'Use mse or mae or huber'),
    ({'loss': 'mae'}, {}, "loss is 'mae', but the labels are classes"),
    ({'label_smoothing': 0.1}, {'targets': ('age',)}, 'regression targets'),
    ({'class_weights': 'inverse'}, {'targets': ('age',)}, 'regression targets'),
    ({'class_weights': 'inverse'}, {'multi_label': True},
     'several classes per image'),
    ({'class_weights': [1.0, -1.0]}, {}, 'must be finite and at least 0'),
])
def test_setting_that_does_not_apply_to_the_labels_is_an_error(
    section, facts, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    objectives.parse(section).build(objectives.Context(
        Linear(), data.Metadata(num_classes=3, **facts)))


def test_class_weights_need_one_weight_per_class():
  with pytest.raises(ValueError, match='has 2 weights, 2 of them above 0'):
    class_weights((1.0, 2.0))
  with pytest.raises(ValueError, match='above 0 for at least one class'):
    class_weights((0.0, 0.0, 1.0), counts=(1, 1, 0))
