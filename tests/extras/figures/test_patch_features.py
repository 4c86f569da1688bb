"""Colours agree with scikit-learn's PCA, similarities with a loop."""

import numpy as np
from sklearn import decomposition

from vit_jax.extras.figures import patch_features


def features(*shape):
  rng = np.random.default_rng(0)
  return (rng.normal(size=shape) * rng.uniform(0.1, 3, shape[-1])).astype(
      np.float32)


def test_colours_are_principal_components_of_all_images():
  values = features(3, 4, 5, 8)
  got = patch_features.colours(values)
  assert got.shape == (3, 4, 5, 3)
  assert got.min() == 0 and got.max() == 1
  wanted = decomposition.PCA(3).fit_transform(values.reshape(-1, 8))
  inside = (got > 0) & (got < 1)  # The ends of the range are clipped.
  assert inside.mean() > 0.9
  for i in range(3):
    kept = inside.reshape(-1, 3)[:, i]
    correlation = np.corrcoef(
        got.reshape(-1, 3)[kept, i], wanted[kept, i])[0, 1]
    assert abs(correlation) > 1 - 1e-6


def test_colours_of_equal_patches_are_finite():
  assert np.isfinite(patch_features.colours(np.ones((1, 2, 2, 4)))).all()


def test_similarity_is_to_the_patch_of_the_same_image():
  values = features(2, 3, 4, 6)
  got = patch_features.similarity(values, row=2, column=1)
  for i, r, c in np.ndindex(got.shape):
    a, b = values[i, r, c], values[i, 2, 1]
    np.testing.assert_allclose(
        got[i, r, c], a @ b / np.linalg.norm(a) / np.linalg.norm(b), rtol=1e-5)
