"""Per-example random values do not depend on how a batch is grouped."""

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models import layers

KEY = jax.random.key(3)
IMAGES = jnp.ones((12, 5))


def drop(images, key, share):
  kept = layers.sample_per_example(
      lambda key, batch, share: jax.random.bernoulli(key, share, (batch, 5)),
      key, images, share)
  return jnp.where(kept, images, 0).sum()


def kept(images, key, share):
  # Taken from a gradient of a scan, as in a layer of a trained model.
  return jax.grad(lambda images: jax.lax.scan(
      lambda total, share: (total + drop(images, key, share), None),
      0.0, share[None])[0])(images)


def test_groups_get_the_values_of_the_whole_batch():
  share = jnp.float32(0.4)
  whole = kept(IMAGES, KEY, share)
  assert 10 < whole.sum() < 40
  groups = jax.jit(jax.vmap(kept, in_axes=(0, None, None)))(
      IMAGES.reshape(4, 3, 5), KEY, share)
  np.testing.assert_array_equal(groups.reshape(12, 5), whole)


def test_models_in_a_vmap_have_separate_random_values():
  keys, shares = jax.random.split(KEY, 2), jnp.asarray([0.2, 0.7])
  one_by_one = np.stack([kept(IMAGES, *row) for row in zip(keys, shares)])
  np.testing.assert_array_equal(
      jax.vmap(kept, in_axes=(None, 0, 0))(IMAGES, keys, shares), one_by_one)
  # With separate images for each model.
  np.testing.assert_array_equal(jax.vmap(kept)(
      jnp.stack([IMAGES, IMAGES]), keys, shares), one_by_one)
