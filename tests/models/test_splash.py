"""TPU kernels, in Pallas's interpreter, agree with plain attention."""

import jax
from jax.experimental.pallas import tpu as pallas_tpu
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import models
from vit_jax.models import attention as attention_lib
from vit_jax.models import splash
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding


@pytest.mark.parametrize(('tokens', 'dtype', 'tolerance'), [
    (197, 'float32', 1e-5), (577, 'bfloat16', 4e-3), (1025, 'float32', 1e-5)])
def test_values_and_gradients_are_those_of_plain_attention(
    tokens, dtype, tolerance):
  rng = np.random.default_rng(0)
  arrays = [jnp.asarray(rng.normal(size=(1, tokens, 2, 64)), dtype)
            for _ in range(4)]

  def outputs(attend, query, key, value, gradient):
    values, pullback = jax.vjp(attend, query, key, value)
    return values, *pullback(gradient)

  with pallas_tpu.force_tpu_interpret_mode():
    found = outputs(splash.attention, *arrays)
  # Rounding a result to bfloat16 is an error of 2e-3.
  expected = outputs(
      lambda *qkv: attention_lib.dot_product_attention(*qkv)[0],
      *(array.astype('float32') for array in arrays))
  for one, other in zip(found, expected):
    error = jnp.linalg.norm(one.astype('float32') - other)
    assert error < tolerance * jnp.linalg.norm(other)


@pytest.mark.parametrize(('num_kv_heads', 'images'), [(2, 2), (0, 1)])
def test_each_device_attends_to_its_images_and_heads(num_kv_heads, images):
  mesh = mesh_lib.build(
      mesh_lib.MeshConfig(data=2, fsdp=1, tensor=2), jax.devices()[:4])
  section = {
      'width': 16, 'depth': 2, 'mlp_dim': 8, 'num_heads': 4, 'patch': 4,
      'num_kv_heads': num_kv_heads, 'remat': 'none'}
  batch = jax.random.normal(jax.random.key(0), (images, 8, 8, 3))
  plain, kernel = (
      models.build(models.parse({**section, 'attention': name}), num_classes=3)
      for name in ('plain', 'splash'))
  params = jax.jit(lambda: models.init(plain, jax.random.key(0), batch))()

  def gradients(model):
    def loss(params):
      return (model.apply({'params': params}, batch)['logits'] ** 2).sum()
    return jax.jit(jax.grad(loss))

  expected = gradients(plain)(params)
  with pallas_tpu.force_tpu_interpret_mode():
    found = sharding.keep_batch_split(gradients(kernel), mesh)(params)
  jax.tree.map(lambda one, other: np.testing.assert_allclose(
      one, other, rtol=1e-3, atol=1e-5), found, expected)


@pytest.mark.parametrize(('attention', 'tokens', 'used'), [
    ('splash', 5, True), ('auto', 512, True), ('auto', 511, False)])
def test_auto_uses_the_kernel_for_long_sequences(
    attention, tokens, used, monkeypatch):
  called = []
  monkeypatch.setattr(splash, 'attention', lambda query, key, value: (
      called.append(query.shape) or value))
  module = attention_lib.SelfAttention(
      models.parse({'width': 8, 'depth': 1, 'mlp_dim': 8, 'num_heads': 2,
                    'patch': 4, 'attention': attention}),
      train=False, capture=False, grid=(1, 1))
  jax.eval_shape(lambda: module.init(
      jax.random.key(0), jnp.ones((1, tokens, 8)), None, jnp.zeros((), int)))
  assert bool(called) == used
