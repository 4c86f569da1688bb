"""The fused attention kernel: equivalence, and when it is used."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.models import attention as attention_lib
from vit_jax.models import factory

TINY = {'name': 'vit', 'width': 16, 'depth': 2, 'mlp_dim': 16, 'num_heads': 2,
        'patch': 4, 'dtype': 'bfloat16'}
GPU, CPU, TPU = (mock.Mock(spec=jax.Device, platform=name)
                 for name in ('gpu', 'cpu', 'tpu'))


@pytest.fixture
def calls(monkeypatch):
  """Shapes of the queries of each kernel call; XLA replaces the kernel."""
  made, function = [], jax.nn.dot_product_attention

  def attend(*qkv, implementation):
    assert implementation == 'cudnn'
    made.append(qkv[0].shape)
    return function(*qkv, implementation='xla')

  monkeypatch.setattr(jax.nn, 'dot_product_attention', attend)
  return made


@pytest.mark.parametrize('groups', [1, 3])
def test_the_kernel_attends_to_groups_of_heads(calls, groups):
  rng = np.random.default_rng(0)
  query, key, value = (
      jnp.asarray(rng.normal(size=(2, 5, heads, 8)), jnp.float32)
      for heads in (3, groups, groups))
  np.testing.assert_allclose(*jax.jit(lambda query, key, value: (
      attention_lib.without_weights(
          query, key, value, kernel='cudnn', recompute=False),
      attention_lib.dot_product_attention(query, *(
          attention_lib.repeat_heads(array, 3) for array in (key, value)))[0]))(
              query, key, value), rtol=1e-5, atol=1e-6)
  assert calls == [(2, 5, 3, 8)]


def trace(section, **options):
  """Traces a model with the parameters of its plain form."""
  plain, fused = (
      factory.build(factory.parse(
          {**TINY, **section, 'attention': name}), num_classes=3)
      for name in ('plain', 'cudnn'))
  images = jnp.ones((1, 8, 8, 3))
  params = jax.eval_shape(
      lambda: factory.init(plain, jax.random.key(0), images))
  jax.eval_shape(lambda p: fused.apply(
      {'params': p}, images, rngs={'dropout': jax.random.key(1)}, **options),
                 params)


@pytest.mark.parametrize(('section', 'options', 'fused'), [
    ({}, {}, True), ({}, {'train': True}, True), ({}, {'capture': True}, False),
    ({'name': 'ablation', 'position': 'relative'}, {}, False),
    ({'attention_dropout': 0.1}, {'train': True}, False),
    ({'attention_dropout': 0.1}, {}, True),
    ({'name': 'ablation', 'axial': True, 'pooling': 'average'}, {}, True)])
def test_weights_dropout_and_relative_positions_take_the_plain_path(
    calls, section, options, fused):
  trace(section, **options)
  assert bool(calls) == fused


def test_only_gpus_have_the_kernel():
  config = factory.parse({**TINY, 'attention': 'cudnn'})
  assert factory.for_devices(config, [GPU] * 2).attention == 'cudnn'
  for device in (CPU, TPU):
    assert factory.for_devices(config, [device] * 2).attention == 'plain'
