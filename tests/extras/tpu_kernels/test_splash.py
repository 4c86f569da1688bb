"""TPU kernels, in Pallas's interpreter, agree with plain attention."""

import jax
from jax.experimental.pallas import tpu as pallas_tpu
import jax.numpy as jnp
import numpy as np
import pytest

from tests import leaves
from vit_jax import registry
from vit_jax.extras.tpu_kernels import splash
from vit_jax.models import attention as attention_lib
from vit_jax.models import factory
from vit_jax.models import vit
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding

SLOW = pytest.mark.slow


@pytest.mark.parametrize(('tokens', 'dtype', 'tolerance'), [
    (197, 'float32', 1e-5), (577, 'bfloat16', 4e-3),
    pytest.param(1025, 'float32', 1e-5, marks=SLOW)])
def test_values_and_gradients_are_those_of_plain_attention(
    tokens, dtype, tolerance):
  rng = np.random.default_rng(0)
  arrays = [jnp.asarray(rng.normal(size=(1, tokens, 2, 64)), dtype)
            for _ in range(4)]

  def outputs(attend, query, key, value, gradient):
    values, pullback = jax.vjp(attend, query, key, value)
    return values, *pullback(gradient)

  outputs = jax.jit(outputs, static_argnums=0)
  with pallas_tpu.force_tpu_interpret_mode():
    found = outputs(splash.attention, *arrays)
  # Rounding a result to bfloat16 is an error of 2e-3.
  expected = outputs(
      lambda *qkv: attention_lib.dot_product_attention(*qkv)[0],
      *(array.astype('float32') for array in arrays))
  for one, other in zip(found, expected):
    error = jnp.linalg.norm(one.astype('float32') - other)
    assert error < tolerance * jnp.linalg.norm(other)


def self_attention(attention):
  return vit.SelfAttention(vit.ViTConfig(
      width=16, depth=1, mlp_dim=8, num_heads=4, patch=4,
      attention=attention), train=False, capture=False)


# Not through the encoder: its scan cannot contain Pallas's interpreter.
@pytest.mark.parametrize('images', [2, pytest.param(1, marks=SLOW)])
def test_each_device_attends_to_its_images_and_heads(images):
  assert_same_when_split(self_attention('plain'), self_attention('splash'),
                         images=images)


@SLOW
@pytest.mark.skipif(
    not leaves.has(registry.MODELS['backbone']), reason='It groups heads.')
def test_each_device_attends_to_its_images_and_groups_of_heads():
  from vit_jax.extras.zoo import attention
  plain, kernel = (
      attention.SelfAttention(factory.parse({
          'name': 'backbone', 'width': 16, 'depth': 1, 'mlp_dim': 8,
          'num_heads': 4, 'num_kv_heads': 2, 'patch': 4, 'attention': name}),
                              train=False, capture=False, grid=(1, 1))
      for name in ('plain', 'splash'))
  assert_same_when_split(plain, kernel, None, jnp.zeros((), int), images=2)


def assert_same_when_split(plain, kernel, *arguments, images):
  """Compares gradients of two attentions on a mesh of four devices."""
  mesh = mesh_lib.build(
      mesh_lib.MeshConfig(data=2, fsdp=1, tensor=2), jax.devices()[:4])
  tokens = jax.random.normal(jax.random.key(0), (images, 5, 16))
  params = plain.init(jax.random.key(1), tokens, *arguments)

  def gradients(module):
    def loss(params, tokens):
      return (module.apply(params, tokens, *arguments)[0] ** 2).sum()
    return jax.jit(jax.grad(loss, argnums=(0, 1)))

  expected = gradients(plain)(params, tokens)
  with pallas_tpu.force_tpu_interpret_mode():
    found = sharding.keep_batch_split(gradients(kernel), mesh)(params, tokens)
  jax.tree.map(lambda one, other: np.testing.assert_allclose(
      one, other, rtol=1e-3, atol=1e-5), found, expected)


@pytest.mark.parametrize('remat', [
    'full', *(pytest.param(x, marks=SLOW) for x in ('none', 'attention'))])
def test_a_sharded_model_lowers_for_tpus(remat):
  mesh = mesh_lib.build(
      mesh_lib.MeshConfig(data=2, fsdp=1, tensor=2), jax.devices()[:4])
  model = factory.build(factory.parse({
      'width': 128, 'depth': 2, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4,
      'attention': 'splash', 'remat': remat}), num_classes=3)
  images = jnp.ones((2, 8, 8, 3))
  params = jax.eval_shape(
      lambda: factory.init(model, jax.random.key(0), images))

  def loss(params):
    return model.apply({'params': params}, images)['logits'].sum()

  traced = jax.jit(sharding.keep_batch_split(jax.grad(loss), mesh)).trace(
      params)
  text = traced.lower(lowering_platforms=('tpu',)).as_text()
  # The backward pass recomputes the forward pass of all layers if remat='full'.
  assert text.count('tpu_custom_call') == (3 if remat == 'full' else 2)


@pytest.mark.parametrize(('attention', 'tokens', 'used'), [
    ('splash', 5, True), ('auto', 512, True), ('auto', 511, False)])
def test_auto_uses_the_kernel_for_long_sequences(
    attention, tokens, used, monkeypatch):
  called = []
  monkeypatch.setattr(splash, 'attention', lambda query, key, value: (
      called.append(query.shape) or value))
  module = self_attention(attention)
  jax.eval_shape(lambda: module.init(
      jax.random.key(0), jnp.ones((1, tokens, 16))))
  assert bool(called) == used
