"""The fused attention kernel: equivalence, and when it is used."""

import functools
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


@pytest.mark.parametrize(('tokens', 'groups'), [(4, 3), (5, 3), (5, 1)])
def test_fused_attention_equals_attention_for_any_number_of_tokens(
    tokens, groups):
  rng = np.random.default_rng(tokens)
  query, key, value, seen = (
      jnp.asarray(rng.normal(size=(2, tokens, heads, 8)), jnp.float32)
      for heads in (3, groups, groups, 3))

  def loss(attend):
    return lambda *qkv: (attend(*qkv) * seen).sum()

  # XLA's form of the same function takes the same arguments as the kernel.
  fused = functools.partial(attention_lib.fused_attention, implementation='xla')
  plain = lambda query, *others: attention_lib.dot_product_attention(
      query, *(attention_lib.repeat_heads(array, 3) for array in others))[0]
  np.testing.assert_allclose(
      fused(query, key, value), plain(query, key, value), rtol=1e-5, atol=1e-6)
  for one, other in zip(*(
      jax.grad(loss(attend), (0, 1, 2))(query, key, value)
      for attend in (fused, plain))):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('tokens', [4, 5])
def test_vmap_batches_every_argument_of_the_kernel(monkeypatch, tokens):
  # The kernel's vmap rule fails if an argument has no groups.
  seen = []

  @jax.custom_batching.custom_vmap
  def kernel(query, *others):
    return query

  @kernel.def_vmap
  def _(groups, batched, query, *others):
    seen.append(batched)
    return query, True

  monkeypatch.setattr(
      jax.nn, 'dot_product_attention',
      lambda *qkv, implementation, **lengths: kernel(*qkv, *lengths.values()))
  groups = jax.ShapeDtypeStruct((2, 3, tokens, 4, 8), jnp.bfloat16)
  jax.eval_shape(jax.vmap(attention_lib.fused_attention), *[groups] * 3)
  assert seen == [[True] * (5 if tokens % 2 else 3)]


@pytest.fixture
def calls(monkeypatch):
  """Shapes of the queries of each kernel call; XLA replaces the kernel."""
  made = []

  def attend(*qkv):
    made.append(qkv[0].shape)
    return fused(*qkv, implementation='xla')

  fused = attention_lib.fused_attention
  monkeypatch.setattr(attention_lib, 'fused_attention', attend)
  return made


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
    ({'position': 'relative'}, {}, False),
    ({'attention_dropout': 0.1}, {'train': True}, False),
    ({'attention_dropout': 0.1}, {}, True),
    ({'axial': True, 'pooling': 'average'}, {}, True)])
def test_weights_dropout_and_relative_positions_take_the_plain_path(
    calls, section, options, fused):
  trace(section, **options)
  assert bool(calls) == fused


def test_only_gpus_have_the_kernel():
  config = factory.parse({**TINY, 'attention': 'cudnn'})
  assert factory.for_devices(config, [GPU] * 2).attention == 'cudnn'
  for device in (CPU, TPU):
    assert factory.for_devices(config, [device] * 2).attention == 'plain'


def test_fused_attention_in_float32_is_an_error():
  with pytest.raises(ValueError, match="'cudnn' needs bfloat16.*'float32'"):
    factory.parse({**TINY, 'attention': 'cudnn', 'dtype': 'float32'})


@pytest.mark.parametrize(('dtype', 'tolerance'), [
    ('float32', 1e-6), ('bfloat16', 2e-2)])
def test_recomputed_weights_give_the_gradients_of_kept_ones(dtype, tolerance):
  rng = np.random.default_rng(0)
  query, key, value, seen = (
      jnp.asarray(rng.normal(size=(2, 5, 3, 8)), dtype) for _ in range(4))

  def outputs(attend):
    values, pullback = jax.vjp(attend, query, key, value)
    return values, *pullback(seen)

  kept = outputs(lambda *qkv: attention_lib.dot_product_attention(*qkv)[0])
  recomputed = outputs(attention_lib.recomputed_attention)
  np.testing.assert_array_equal(kept[0], recomputed[0])
  for one, other in zip(kept[1:], recomputed[1:]):
    np.testing.assert_allclose(
        one.astype('float32'), other.astype('float32'), atol=tolerance)
