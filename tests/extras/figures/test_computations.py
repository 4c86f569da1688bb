"""What figures show agrees with scikit-learn, and with loops."""

import numpy as np
from PIL import Image
import pytest
from scipy import special
from sklearn import decomposition
from sklearn import metrics

from vit_jax.extras.figures import attention_maps
from vit_jax.extras.figures import embeddings
from vit_jax.extras.figures import model_figures
from vit_jax.extras.figures import patch_features

GRID, PATCH = (3, 4), (8.0, 8.0)


def weights(layers=2, batch=2, heads=3, prefix=1):
  rng = np.random.default_rng(0)
  tokens = prefix + GRID[0] * GRID[1]
  logits = rng.normal(size=(layers, batch, heads, tokens, tokens))
  return special.softmax(logits, axis=-1)


def distance_of(rows):
  return attention_maps.mean_distance(
      np.asarray(rows, np.float64)[None, None, None], grid=GRID,
      patch=PATCH)[0, 0]


def test_mean_distance_is_weighted_by_the_attention_to_patches():
  given = weights()
  patches = given[..., 1:, 1:] / given[..., 1:, 1:].sum(-1, keepdims=True)
  places = 8 * np.stack(np.divmod(np.arange(12), 4), -1)
  far = np.hypot(*np.moveaxis(places[:, None] - places, -1, 0))
  np.testing.assert_allclose(
      attention_maps.mean_distance(given, grid=GRID, patch=PATCH),
      (patches * far).sum(-1).mean((1, 3)))


def test_queries_that_attend_only_to_the_class_token_are_left_out():
  rows = np.zeros((13, 13))
  rows[:, 0] = 1  # All patches attend to the class token,
  rows[1] = np.eye(13)[4]  # but one, three patches to the right.
  assert distance_of(rows) == 24


@pytest.mark.parametrize(('pooling', 'queries'), [
    ('cls', slice(0, 1)), ('average', slice(2, 14))])
def test_head_maps_are_those_of_the_pooled_tokens(pooling, queries):
  given = weights(prefix=2)[:, 0]
  got = attention_maps.head_maps(given, grid=GRID, pooling=pooling)
  np.testing.assert_allclose(
      got.reshape(2, 3, 12), given[:, :, queries, 2:].mean(2))


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


def test_similarity_may_be_to_a_patch_of_the_first_image():
  values = features(2, 3, 4, 6)
  got = patch_features.similarity(values, row=2, column=1, of_first=True)
  for i, r, c in np.ndindex(got.shape):
    a, b = values[i, r, c], values[0, 2, 1]
    np.testing.assert_allclose(
        got[i, r, c], a @ b / np.linalg.norm(a) / np.linalg.norm(b), rtol=1e-5)


def test_maps_are_stretched_without_regard_to_few_outliers():
  values = np.arange(1.0, 401).reshape(20, 20)
  outlier = values.copy()
  outlier[-1, -1] = 1e6
  got = model_figures.stretch(outlier)
  assert got.min() == 0 and got.max() == 1
  np.testing.assert_allclose(got, model_figures.stretch(values), atol=1e-6)
  assert not model_figures.stretch(np.ones((4, 4))).any()


def test_overlays_are_smooth_and_leave_low_values_grey():
  image = np.full((40, 60, 3), (200, 100, 0), np.uint8)
  values = np.zeros((4, 6))
  values[1, 4] = 1
  got = model_figures.overlay(image, values)
  assert got.shape == image.shape
  assert (got[:, :10] == 80).all()  # 0.8 times the mean of the channels.
  assert np.ptp(got[15, 45]) > 50
  assert len(np.unique(got[15, 30:60, 0])) > 10  # Not squares of ten pixels.


def test_a_strip_has_equal_tiles_of_equal_pictures(tmp_path):
  colours = [np.full((20, 40, 3), value, np.uint8) for value in (0, 90, 180)]
  path = tmp_path / 'strip.png'
  model_figures.strip({'a': colours, 'b': colours[:1]}, path)
  # Two pixels between pictures, twelve between tiles; text is above.
  found = np.asarray(Image.open(path).convert('L'))[-(2 * 56 + 2):]
  assert found.shape[1] == 2 * (2 * 112 + 2) + 12
  expected = np.full_like(found, 255)
  expected[:56, :112] = expected[:56, 238:350] = 0
  expected[:56, 114:226], expected[58:, :112] = 90, 180
  np.testing.assert_array_equal(found, expected)
