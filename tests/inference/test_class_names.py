"""Names that a caller gives for the classes of a model."""

import numpy as np
import pytest

from tests import random_models
import vit_jax
from vit_jax.inference import class_names

IMAGES = np.random.default_rng(1).uniform(
    -1, 1, (4, 8, 8, 3)).astype(np.float32)


@pytest.fixture(scope='module')
def model():
  return random_models.make(
      {**random_models.TINY, 'depth': 1, 'num_classes': 3}, side=8,
      labels=('cat', 'dog', 'owl'))


def test_the_same_names_in_another_order_reorder_the_outputs(model, tmp_path):
  names = ('owl', 'cat', 'dog')
  model.save(tmp_path / 'model')
  for other in (class_names.in_order(model, names),
                vit_jax.load(tmp_path / 'model', log=None, labels=names)):
    assert other.preprocess.labels == names
    np.testing.assert_array_equal(
        other(IMAGES)['logits'], model(IMAGES)['logits'][:, [2, 0, 1]])
  assert class_names.in_order(model, ('owl', 'cat', 'cow')) is model


@pytest.mark.parametrize('names', [('a', 'b', 'c'), ('cat', 'dog', 'barn owl')])
def test_new_names_are_given_by_index(model, names):
  other = class_names.rename(model, names)
  assert other.preprocess.labels == names
  np.testing.assert_array_equal(
      other(IMAGES)['logits'], model(IMAGES)['logits'])


@pytest.mark.parametrize(('names', 'message'), [
    (('ant', 'cat', 'dog'), 'only in labels: ant; only in the model .*: owl'),
    (('cat', 'owl', 'owl'), 'have the same name: owl'),
    (('cat', 'dog'), 'labels holds 2 names .* model has 3 classes')])
def test_a_name_of_another_class_is_an_error(model, names, message):
  with pytest.raises(ValueError, match=message):
    class_names.rename(model, names)
