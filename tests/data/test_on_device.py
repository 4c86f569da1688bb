"""Batches are scaled and labelled on the device."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data import on_device
from vit_jax.data import value_scale as value_scale_lib


def test_pixels_are_normalised_per_channel():
  image = np.random.default_rng(0).integers(
      0, 256, (2, 4, 5, 3), dtype=np.uint8)
  mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
  scale = value_scale_lib.ValueScale(mean, std)
  result = scale.normalize(scale.to_unit(jnp.asarray(image)))
  assert result.dtype == jnp.float32
  np.testing.assert_allclose(
      result, (image / 255 - np.array(mean)) / np.array(std), rtol=1e-5,
      atol=1e-6)


def test_k_hot_needs_no_communication():
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ('data',))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('data'))
  labels = jax.ShapeDtypeStruct((64, 32), jnp.int32, sharding=rows)
  compiled = jax.jit(functools.partial(
      on_device.k_hot, num_classes=30_000), out_shardings=rows,
  ).lower(labels).compile()
  for collective in ('all-gather', 'all-reduce', 'all-to-all', 'permute'):
    assert collective not in compiled.as_text()
  # The array [batch, labels, classes] is never materialised.
  assert compiled.memory_analysis().temp_size_in_bytes < 2**20
