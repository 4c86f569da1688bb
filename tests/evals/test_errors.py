"""Evaluators that are misspelt, or that the data do not suit."""

import re

import numpy as np
import pytest

from tests import leaves
from tests import toy as toy_lib
from vit_jax import evals
from vit_jax import registry

TARGETS = ('age', 'mass')
# Images and labels of a split, and what is known of it.
SPLITS = {
    'single': (np.eye(6), np.arange(6), {}),
    'five': (np.eye(6)[:5, :5], np.arange(5), {}),
    'multi': (np.eye(6), np.eye(6, dtype=int), {}),
    'targets': (np.eye(2), np.eye(2), {'targets': TARGETS}),
    'empty': (np.zeros((0, 6)), np.zeros(0, int), {})}


def build(toy, name, split, train='', **options):
  splits = {key: toy.split(images, labels, num_classes=max(
      images.shape[1], 2), **facts) for key, (images, labels, facts) in (
          ('', SPLITS[split]), ('train', SPLITS[train or split]))}
  return toy({'name': name}, splits, **options)


@pytest.mark.parametrize(('name', 'split', 'options', 'words'), [
    ('knn', 'multi', {}, 'evals.test needs one label per image'),
    ('fewshot', 'multi', {}, 'evals.test needs one label per image'),
    ('knn', 'single', {}, 'evals.test.k is 20, but toy test has only 6 exam'),
    ('knn', 'single', {'train': 'five'},
     'toy test has 5 classes, but toy test has 6'),
    ('classification', 'single', {'num_classes': 7}, '6 without names'),
    ('classification', 'empty', {}, 'has no examples'),
    ('regression', 'single', {}, 'name=classification'),
    ('regression', 'single', {'targets': TARGETS},
     r'the model \(toy\) predicts regression targets \(age, mass\), but toy '
     'test has classes.*table.label=age,mass'),
    *((name, 'targets', {'targets': TARGETS}, re.escape(
        'evals.test measures classes, but the labels of toy test are '
        'regression targets (age, mass). Use '
        '--config.evals.test.name=regression.')) for name in (
            'classification', 'confusion', 'calibration', 'multi_label', 'knn')
      if leaves.has(registry.EVALUATORS[name]))])
def test_labels_that_do_not_suit_an_evaluator_are_errors(
    toy, name, split, options, words):
  with pytest.raises(ValueError, match=words):
    build(toy, name, split, **options)(toy.params)


@pytest.mark.parametrize(('name', 'section', 'words'), [
    ('val', {'name': 'fewshot', 'shots': [5, 5]}, 'must be different numbers'),
    ('val', {'name': 'fewshot', 'shots': [-1]}, 'must be different numbers'),
    ('val', {'name': 'fewshot', 'penalty': 0.0}, 'must be above 0'),
    ('val', {'name': 'fewshot', 'classifiers': []}, 'classifiers is empty'),
    ('val', {'name': 'knn', 'k': 0}, 'k must be at least 1'),
    # The names of metrics would be ambiguous.
    ('train', {}, "'train' cannot be the name of an ev"),
    ('a/b', {}, "'a/b' cannot be the name of an ev")])
def test_wrong_settings_are_errors(name, section, words):
  with pytest.raises(ValueError, match=words):
    evals.parse({name: section})


FEWSHOT = {'name': 'fewshot', 'batch_size': None}


def build_run(section, devices=1):
  return toy_lib.build(devices=devices, evals={
      'val': {'batch_size': 25, **section}})


@pytest.mark.parametrize(('section', 'devices', 'message'), [
    ({'name': 'knn', 'split': 'train[90%:]'}, 1,
     "'train' shares examples with it. Use a disjoint split: "
     '--config.evals.val.train_split'),
    ({'batch_size': 12}, 8,
     'evals.val.batch_size 12 does not divide over data x fsdp = 8 devices'),
    ({'source': 'ciphar10'}, 1, 'No dataset'),
    ({**FEWSHOT, 'shots': [1000]}, 1,
     'evals.val needs 1000 images of each class (shots), but a '
     "class of train_split 'train' has 139."),
    ({**FEWSHOT, 'shots': [1], 'train_split': 'train[:3]'}, 1,
     'evals.val: digits train[:3] has no examples of some of the 10 classes'),
])
def test_data_that_does_not_fit_stops_a_run_at_its_start(
    section, devices, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    build_run(section, devices)


def test_default_shots_are_limited_by_the_smallest_class(capsys):
  built = build_run({**FEWSHOT, 'train_split': 'train[:160]', 'seeds': 1})
  assert ('evals.val leaves out the shots 25: a class of train[:160] has '
          in capsys.readouterr().out)
  result = built.evaluate('val', built.init_state().params).metrics
  assert [name for name in result if name.endswith('_shot')] == [
      '1_shot', '5_shot', '10_shot']
