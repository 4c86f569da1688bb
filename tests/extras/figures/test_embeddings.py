"""Filters and positions agree with scikit-learn."""

import numpy as np
from sklearn import decomposition
from sklearn import metrics

from vit_jax.extras.figures import embeddings


def test_filters_agree_with_scikit_learn():
  kernel = np.random.default_rng(0).normal(size=(4, 4, 3, 60))
  got = embeddings.filters(kernel, count=28)
  wanted = decomposition.PCA(28).fit(kernel.reshape(48, 60).T).components_
  assert got.shape == (28, 4, 4, 3)
  cosines = np.abs((got.reshape(28, 48) * wanted).sum(-1))
  np.testing.assert_allclose(cosines, 1, atol=1e-6)
  flat = got.reshape(28, -1)  # The largest value is positive.
  np.testing.assert_allclose(np.abs(flat).max(-1), flat.max(-1))
  assert len(embeddings.filters(kernel[..., :6])) == 5


def test_convolution_filters_agree_with_a_loop():
  kernel = np.random.default_rng(0).normal(3, 2, size=(7, 7, 3, 5))
  got = embeddings.convolution(kernel, count=4)
  assert got.shape == (4, 7, 7, 3)
  for i in range(4):
    one = kernel[..., i]
    np.testing.assert_allclose(got[i], (one - one.mean()) / one.std())


def test_similarities_are_cosines():
  table = np.random.default_rng(0).normal(size=(6, 5))
  got = embeddings.similarity(table, grid=(2, 3))
  np.testing.assert_allclose(
      got.reshape(6, 6), metrics.pairwise.cosine_similarity(table))
