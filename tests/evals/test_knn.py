"""k-NN accuracy, compared with scikit-learn."""

import jax
import numpy as np
import pytest
from sklearn import neighbors

from tests import toy as toy_lib
from vit_jax.evals import features as features_lib
from vit_jax.evals import knn

RNG = np.random.default_rng(0)
CLASSES, WIDTH = 3, 5


def data(count):
  labels = RNG.integers(0, CLASSES, count)
  centres = np.random.default_rng(7).normal(size=(CLASSES, WIDTH))
  return (centres[labels] + 1.5 * RNG.normal(size=(count, WIDTH))).astype(
      np.float32), labels


@pytest.mark.parametrize(('k', 'temperature'), [(1, 0.07), (5, 0.07), (20, 1.)])
def test_accuracy_agrees_with_scikit_learn(toy, k, temperature):
  (bank, labels), (queries, expected) = data(61), data(30)
  got = toy({'name': 'knn', 'k': k, 'temperature': temperature}, {
      'train': toy.split(bank, labels, num_classes=CLASSES),
      '': toy.split(queries, expected, num_classes=CLASSES)},
  )(toy.params).metrics
  reference = neighbors.KNeighborsClassifier(
      n_neighbors=k, metric='cosine', algorithm='brute',
      weights=lambda distance: np.exp((1 - distance) / temperature),
  ).fit(bank.astype(np.float64), labels).score(queries, expected)
  assert got == {'accuracy': pytest.approx(reference), 'examples': 30,
                 **features_lib.spread(bank)}
  assert 1 / CLASSES < reference < 1


def test_features_of_a_layer_are_averaged_over_the_mirror_image(monkeypatch):
  monkeypatch.setattr(
      knn.KnnConfig, 'build', lambda self, context: lambda *_: context)
  images = RNG.normal(size=(2, 8, 8, 3)).astype(np.float32)

  experiment = toy_lib.build(evals={
      name: {'name': 'knn', 'flip': name == 'flipped'}
      for name in ('plain', 'flipped')})
  params = experiment.random_params()

  def features(name, images):
    context = experiment.evaluators[name]()
    return jax.jit(lambda params, images: context.features(
        params, {'image': images}, 'cls:1', 'feature'))(params, images)

  np.testing.assert_allclose(
      features('flipped', images),
      (features('plain', images) + features('plain', images[:, :, ::-1])) / 2,
      atol=1e-6)


def test_spread_measures_the_dimensions_that_features_use():
  # Orthogonal directions with equal deviations, around a large mean.
  rotation, _ = np.linalg.qr(RNG.normal(size=(8, 8)))
  corners = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
  values = (np.pad(corners, ((0, 0), (0, 5))) @ rotation + 50).astype(
      np.float32)
  assert features_lib.spread(values)['feature_rank'] == pytest.approx(
      3, rel=1e-3)
  sphere = RNG.normal(size=(50_000, 8)).astype(np.float32)
  assert features_lib.spread(sphere) == pytest.approx(
      {'feature_rank': 8, 'feature_std': 1}, rel=0.02)


@pytest.mark.parametrize('collapsed', [True, False])
def test_collapsed_features_are_reported(toy, capsys, collapsed):
  values, labels = data(40)
  if collapsed:
    values = np.full_like(values, 3.0)
  split = toy.split(values, labels, num_classes=CLASSES)
  got = toy(
      {'name': 'knn', 'k': 2}, {'': split, 'train': split})(toy.params).metrics
  assert ('evals.test: the features have collapsed: rank 1 of 5, standard '
          'deviation 0.00 ' in capsys.readouterr().out) == collapsed
  assert (got['feature_std'] < 1e-6) == collapsed


def test_ties_go_to_the_lowest_class():
  rows = np.ones((2, WIDTH), np.float32)
  assert knn.predict(rows[:1], rows, np.array([2, 1]), k=2,
                     temperature=0.07).tolist() == [1]


def test_nan_features_are_an_error(toy):
  images, labels = data(8)
  images[3, 1] = np.nan
  split = toy.split(images, labels, num_classes=CLASSES)
  with pytest.raises(ValueError, match='the representation of an image of toy'):
    toy({'name': 'knn', 'k': 2}, {'': split, 'train': split})(toy.params)
