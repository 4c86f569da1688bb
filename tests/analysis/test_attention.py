"""Attention distance and rollout agree with loops and known patterns."""

import numpy as np
import pytest

from vit_jax.analysis import attention

GRID, PATCH = (3, 4), (8.0, 8.0)


def weights(layers=2, batch=2, heads=3, prefix=1):
  rng = np.random.default_rng(0)
  tokens = prefix + GRID[0] * GRID[1]
  logits = rng.normal(size=(layers, batch, heads, tokens, tokens))
  exps = np.exp(logits)
  return exps / exps.sum(-1, keepdims=True)


def distance_of(rows):
  return attention.mean_distance(
      np.asarray(rows, np.float64)[None, None, None], grid=GRID,
      patch=PATCH)[0, 0]


def test_mean_distance_agrees_with_a_loop():
  given = weights()
  wanted = np.zeros((2, 3))
  for layer in range(2):
    for head in range(3):
      values = []
      for image in range(2):
        for q in range(12):
          row = given[layer, image, head, 1 + q, 1:]
          total = 0.0
          for k in range(12):
            (qy, qx), (ky, kx) = divmod(q, 4), divmod(k, 4)
            far = 8 * ((qy - ky) ** 2 + (qx - kx) ** 2) ** 0.5
            total += row[k] / row.sum() * far
          values.append(total)
      wanted[layer, head] = np.mean(values)
  np.testing.assert_allclose(
      attention.mean_distance(given, grid=GRID, patch=PATCH), wanted)


def test_queries_that_attend_only_to_the_class_token_are_left_out():
  rows = np.zeros((13, 13))
  rows[:, 0] = 1  # All patches attend to the class token,
  rows[1] = np.eye(13)[4]  # but one, three patches to the right.
  assert distance_of(rows) == 24


def test_rollout_agrees_with_a_loop_and_its_rows_sum_to_one():
  given = weights(layers=3)
  got = attention.rollout(given)
  for image in range(2):
    wanted = np.eye(13)
    for layer in range(3):
      mixed = sum(given[layer, image, head] for head in range(3)) / 3
      mixed = (mixed + np.eye(13)) / 2
      wanted = mixed @ wanted
    np.testing.assert_allclose(got[image], wanted)
  np.testing.assert_allclose(got.sum(-1), 1)


@pytest.mark.parametrize('pooling', ['average', 'attention'])
def test_rollout_maps_without_cls_average_the_patches(pooling):
  given = weights(prefix=2)  # Registers, whose share is left out.
  wanted = np.zeros((2, 12))
  for image, mixed in enumerate(attention.rollout(given)):
    for q in range(2, 14):
      for k in range(2, 14):
        wanted[image, k - 2] += mixed[q, k] / 12
  wanted /= wanted.sum(-1, keepdims=True)
  got = attention.rollout_map(given, grid=GRID, pooling=pooling)
  np.testing.assert_allclose(got.reshape(2, 12), wanted)


@pytest.mark.parametrize(('pooling', 'queries'), [
    ('cls', [0]), ('average', range(2, 14)), ('attention', range(2, 14))])
def test_head_maps_agree_with_a_loop(pooling, queries):
  given = weights(prefix=2)[:, 0]
  got = attention.head_maps(given, grid=GRID, pooling=pooling)
  for layer in range(2):
    for head in range(3):
      for k in range(12):
        wanted = sum(given[layer, head, q, 2 + k] for q in queries)
        np.testing.assert_allclose(
            got[layer, head, k // 4, k % 4], wanted / len(queries))
