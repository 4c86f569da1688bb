"""Attention rollout agrees with loops."""

import numpy as np
import pytest
from scipy import special

from vit_jax.inference import attention as attention_maps

GRID = 3, 4


def weights(layers=2, batch=2, heads=3, prefix=1):
  rng = np.random.default_rng(0)
  tokens = prefix + GRID[0] * GRID[1]
  logits = rng.normal(size=(layers, batch, heads, tokens, tokens))
  return special.softmax(logits, axis=-1)


def test_rollout_agrees_with_a_loop_and_its_rows_sum_to_one():
  given = weights(layers=3)
  got = attention_maps.rollout(given)
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
  wanted = attention_maps.rollout(given)[:, 2:, 2:].mean(1)
  wanted /= wanted.sum(-1, keepdims=True)
  got = attention_maps.rollout_map(given, grid=GRID, pooling=pooling)
  np.testing.assert_allclose(got.reshape(2, 12), wanted)
