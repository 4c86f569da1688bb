"""The TPU kernel serves grouped queries."""

import jax.numpy as jnp

from tests.models import test_splash
from vit_jax.extras.zoo import attention
from vit_jax.models import factory


def test_each_device_attends_to_its_images_and_groups_of_heads():
  plain, kernel = (
      attention.SelfAttention(factory.parse({
          'name': 'backbone', 'width': 16, 'depth': 1, 'mlp_dim': 8,
          'num_heads': 4, 'num_kv_heads': 2, 'patch': 4, 'attention': name}),
                              train=False, capture=False, grid=(1, 1))
      for name in ('plain', 'splash'))
  test_splash.assert_same_when_split(
      plain, kernel, None, jnp.zeros((), int), images=2)
