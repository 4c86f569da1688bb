"""Names that a caller gives for the classes of a model."""

import dataclasses

import numpy as np
import pytest

from tests import random_models
import vit_jax
from vit_jax.inference import load as load_lib

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
  for other in (load_lib.rename(model, names),
                vit_jax.load(tmp_path / 'model', log=None, labels=names)):
    assert other.preprocess.labels == names
    np.testing.assert_array_equal(
        other(IMAGES)['logits'], model(IMAGES)['logits'][:, [2, 0, 1]])


@pytest.mark.parametrize('names', [('a', 'b', 'c'), ('cat', 'dog', 'barn owl')])
def test_new_names_are_given_by_index(model, names):
  other = load_lib.rename(model, names)
  assert other.preprocess.labels == names
  np.testing.assert_array_equal(
      other(IMAGES)['logits'], model(IMAGES)['logits'])


GIVEN = [
    (('cat', 'dog', 'owl'), ('cat', 'dog', 'emu'),
     'named by index: cat, dog, emu'),
    (('cat', 'dog', 'owl'), ('owl', 'cat', 'dog'),
     'reordered the outputs: owl, cat, dog'),
    ((), ('a', 'b', 'c'), 'named by index: a, b, c'),
    (('cat', 'dog', 'owl'), ('cat', 'dog', 'owl'), '')]


@pytest.mark.parametrize(('before', 'names', 'line'), GIVEN)
def test_a_load_says_how_given_names_replace_others(
    model, before, names, line, tmp_path, form='orbax'):
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, labels=before)).save(tmp_path / 'x', form=form)
  lines = []
  loaded = vit_jax.load(tmp_path / 'x', log=lines.append, labels=names)
  assert lines == list(loaded.summary) and loaded.preprocess.labels == names
  assert (f'  {line}' == lines[-1]) == bool(line)
  assert (loaded.settings['labels'] == 'given') == bool(line)
  assert any(' labels=' in text for text in lines) != bool(line)


@pytest.mark.parametrize(('names', 'message'), [
    (('ant', 'cat', 'dog'), '(?s)only here: ant.*only here: owl'),
    (('cat', 'owl', 'owl'), 'several times: owl'),
    (('cat', 'dog'), 'labels holds 2 names .* model has 3 classes')])
def test_a_name_of_another_class_is_an_error(model, names, message):
  with pytest.raises(ValueError, match=message):
    load_lib.rename(model, names)
