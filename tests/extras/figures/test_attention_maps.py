"""Attention distances and maps agree with known patterns."""

import numpy as np
import pytest
from scipy import special

from vit_jax.extras.figures import attention_maps

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
