"""Nearest neighbours agree with scikit-learn for all block sizes."""

import numpy as np
import pytest
from sklearn import neighbors

from vit_jax import nearest_neighbours

RNG = np.random.default_rng(0)
QUERIES = RNG.normal(size=(23, 5)).astype(np.float32)
BANK = RNG.normal(size=(50, 5)).astype(np.float32)


@pytest.mark.parametrize(('query_rows', 'bank_rows'), [(1024, 8192), (4, 6)])
def test_neighbours_are_those_of_scikit_learn(
    query_rows, bank_rows, monkeypatch):
  monkeypatch.setattr(nearest_neighbours, 'QUERY_ROWS', query_rows)
  monkeypatch.setattr(nearest_neighbours, 'BANK_ROWS', bank_rows)  # Below k.
  cosines, rows = nearest_neighbours.nearest(QUERIES, BANK, k=7)
  model = neighbors.NearestNeighbors(
      n_neighbors=7, metric='cosine', algorithm='brute').fit(BANK)
  distances, expected = model.kneighbors(QUERIES)
  np.testing.assert_array_equal(rows, expected)
  np.testing.assert_allclose(cosines, 1 - distances, atol=1e-5)


def test_ties_go_to_the_first_row():
  same = np.ones((4, 5), np.float32)
  _, rows = nearest_neighbours.nearest(same[:1], same, k=2)
  assert rows.tolist() == [[0, 1]]


def test_votes_are_sums_of_weights():
  votes = nearest_neighbours.vote(
      np.array([[2, 0, 2]]), np.array([[0.5, 1.0, 0.25]]), num_classes=3)
  assert votes.tolist() == [[1.0, 0.0, 0.75]]
