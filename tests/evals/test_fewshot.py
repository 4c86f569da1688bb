"""Few-shot accuracy, compared with scikit-learn."""

import dataclasses

import numpy as np
import pytest
from sklearn import linear_model

from tests import in_memory
from vit_jax.evals import fewshot

RNG = np.random.default_rng(0)
CLASSES, WIDTH = 4, 6


def examples(per_class, *, noise=1.5):
  labels = np.repeat(np.arange(CLASSES), per_class)
  centres = np.random.default_rng(7).normal(size=(CLASSES, WIDTH))
  return (centres[labels] + noise * RNG.normal(size=(len(labels), WIDTH))
          ).astype(np.float32), labels


def by_hand(few, labels, test, *, penalty):
  mean, std = few.mean(0, np.float64), few.std(0, np.float64) + 1e-5
  def columns(x):
    return np.c_[(x - mean) / std, np.full(len(x), 100.0)]
  ridge = linear_model.Ridge(alpha=penalty, fit_intercept=False)
  ridge.fit(columns(few), 2.0 * np.eye(CLASSES)[labels] - 1)
  return ridge.predict(columns(test)).argmax(-1)


def sample(toy, images, labels, *, count, seeds):
  """Returns a split with random ranks, and its images and labels."""
  ranks = np.full((seeds, len(labels)), -1)
  for row in ranks:
    for c in range(CLASSES):
      where = RNG.permutation(np.flatnonzero(labels == c))[:count]
      row[where] = np.arange(len(where))
  kept = (ranks >= 0).any(0)
  return toy.split(images[kept], labels[kept], num_classes=CLASSES,
                   ranks=ranks[:, kept]), images[kept], labels[kept]


def evaluate(toy, train, test, **section):
  """Returns the metrics of a split of training images and images, labels."""
  return toy({'name': 'fewshot', **section}, {
      'train': train, '': toy.split(*test, num_classes=CLASSES)})(
          toy.params).metrics


@pytest.mark.parametrize('penalty', [0.5, 1024.0])
def test_accuracy_is_the_mean_over_samples(toy, penalty):
  images, labels = examples(12)
  train, few, few_labels = sample(toy, images, labels, count=5, seeds=3)
  test_images, test_labels = test = examples(9)
  got = evaluate(toy, train, test, shots=[2, 5], penalty=penalty)
  for shots in (2, 5):
    expected = []
    for ranks in train.ranks:
      chosen = (ranks >= 0) & (ranks < shots)
      assert np.bincount(few_labels[chosen]).tolist() == [shots] * CLASSES
      expected.append(np.mean(test_labels == by_hand(
          few[chosen], few_labels[chosen], test_images, penalty=penalty)))
    assert got[f'{shots}_shot'] == pytest.approx(np.mean(expected))
    assert got[f'{shots}_shot_std'] == pytest.approx(np.std(expected, ddof=1))
  assert got['examples'] == 36
  assert 0.25 < got['5_shot'] < 1


def test_the_penalty_of_a_linear_probe_is_chosen_on_held_out_images():
  x, labels = examples(30)
  x = (x - x.mean(0, np.float64)) / x.std(0)
  held_out = np.arange(len(x)) % 5 == 4
  penalties = [1 / (fitted.C * len(x)) for fitted in (
      fewshot.logistic_regression(x, labels, held_out=rows)
      for rows in (held_out, np.zeros(len(x), bool)))]
  # Of the mean loss; without held-out images, it is the strongest.
  assert fewshot.LINEAR_PENALTIES[0] == pytest.approx(penalties[1])
  assert penalties[1] > penalties[0] > fewshot.LINEAR_PENALTIES[-1]


def test_classifiers_share_samples_and_all_images_are_one_sample(toy):
  images, labels = examples(12)
  images, labels = images[5:], labels[5:]  # The first class has 7 images.
  train, few, few_labels = sample(toy, images, labels, count=12, seeds=2)
  test = examples(9)
  section = {'shots': [10, 0], 'classifiers': ['ridge', 'linear', 'knn']}
  got = evaluate(toy, train, test, seeds=2, **section)
  nearest = evaluate(toy, train, test, name='knn', k=20)
  assert got['knn_all_shot'] == nearest['accuracy']
  alone = []  # The metrics of each sample, without the other images.
  for ranks in train.ranks:
    rows = ranks < 10
    alone.append(evaluate(toy, toy.split(
        few[rows], few_labels[rows], num_classes=CLASSES,
        ranks=ranks[None, rows]), test, seeds=1, **section))
  for metric in ('10_shot', 'linear_10_shot', 'knn_10_shot'):
    assert got[metric] == pytest.approx(np.mean([m[metric] for m in alone]))
  assert {'10_shot', '10_shot_std', 'linear_10_shot', 'linear_10_shot_std',
          'knn_10_shot', 'knn_10_shot_std', 'all_shot', 'linear_all_shot',
          'knn_all_shot', 'examples'} == set(got)
  assert 0.4 < got['linear_all_shot'] < 1


def test_small_classes_are_used_whole_if_the_section_allows_it(toy):
  images, labels = examples(12)
  train, *_ = sample(toy, images[5:], labels[5:], count=12, seeds=1)
  with pytest.raises(ValueError, match='10 images of each class'):
    evaluate(toy, train, examples(9), seeds=1, shots=[10])
  got = evaluate(toy, train, examples(9), seeds=1, shots=[10], allow_fewer=True)
  assert 0.25 < got['10_shot'] < 1


def test_a_linear_probe_holds_out_whole_groups(toy, monkeypatch):
  class Grouped(in_memory.Numbers):
    def groups_of(self, indices):
      return (indices // 3).astype(np.uint64)  # Three images of each.

  images, labels = examples(15)
  train = toy.split(images, labels, num_classes=CLASSES,
                    ranks=np.tile(np.arange(15), CLASSES)[None])
  train = dataclasses.replace(train, dataset=dataclasses.replace(
      train.dataset, source=Grouped(len(images))))
  found, fit = [], fewshot.logistic_regression
  monkeypatch.setattr(
      fewshot, 'logistic_regression', lambda x, y, held_out, after_fit: (
          found.append((held_out, y)),
          fit(x, y, held_out=held_out, after_fit=after_fit))[1])
  for shots in (0, 4):
    evaluate(toy, train, examples(3), shots=[shots], seeds=1,
             classifiers=['linear'])
  (held_out, y), (few, _) = found
  assert np.unique(held_out.reshape(-1, 3), axis=1).shape[1] == 1
  for c in range(CLASSES):  # A fifth of the five groups of each class.
    assert held_out[y == c].sum() == 3
  # With few images per class, the penalty is the strongest.
  assert not few.any()
