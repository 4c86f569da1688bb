"""The encoder: scan, remat, dropout, stochastic depth and intermediates."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import jaxprs
from tests import random_models
from vit_jax.models import factory

TINY = {'width': 8, 'depth': 3, 'mlp_dim': 12, 'num_heads': 2, 'patch': 4}
IMAGES = jnp.asarray(
    np.random.default_rng(0).normal(size=(2, 8, 8, 3)), jnp.float32)
TOKENS, BATCH = 5, 2


def build(**section):
  return factory.build(factory.parse({**TINY, **section}), num_classes=3)


@pytest.fixture(scope='module')
def params():
  return random_models.randomize(build(), IMAGES, scale=0.4, seed=1)


@functools.cache
def jitted(*, capture, **section):
  model = build(**section)
  return jax.jit(lambda params, images, key: model.apply(
      {'params': params}, images, train=key is not None, capture=capture,
      rngs=None if key is None else {'dropout': key}))


def apply(params, images=IMAGES, *, section, key=None, capture=False):
  return jitted(capture=capture, **section)(
      params, images, None if key is None else jax.random.key(key))


def loss_and_gradients(model, params, *, train=False, images=IMAGES):
  def loss(p):
    outputs = model.apply(
        {'params': p}, images, train=train,
        rngs={'dropout': jax.random.key(7)})
    return jnp.sin(outputs['logits']).sum(), outputs
  (_, outputs), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
  return outputs, grads


RANDOM = {'dropout': 0.2, 'attention_dropout': 0.2, 'stochastic_depth': 0.3}
COMPILED = [{'unroll': 2}, {'remat': 'attention'}, {'remat': 'dots'},
            {'remat': 'full'}, {'remat': 'attention', 'unroll': 3}]


# With dropout of attention weights, no form would recompute them.
DROPPED = {**RANDOM, 'attention_dropout': 0.0}


@pytest.fixture(scope='module')
def scanned(params):
  return loss_and_gradients(build(**DROPPED), params, train=True)


@pytest.mark.parametrize('how', [
    pytest.param(how, marks=[pytest.mark.slow] * (how != COMPILED[-1]))
    for how in COMPILED], ids=str)
def test_scanned_unrolled_and_remat_are_one_computation(params, scanned, how):
  outputs, grads = scanned
  got, got_grads = loss_and_gradients(
      build(**DROPPED, **how), params, train=True)
  random_models.assert_close((got, got_grads), (outputs, grads))
  assert all(jnp.any(leaf != 0) for leaf in jax.tree.leaves(grads))


@pytest.mark.slow
def test_unroll_and_remat_do_not_change_the_parameters():
  def boxed(model):
    return jax.jit(lambda: factory.init(model, jax.random.key(0), IMAGES))()
  want, have = boxed(build()), boxed(build(**COMPILED[-1]))
  # With the names of the axes, which are part of the structure.
  assert jax.tree.structure(want) == jax.tree.structure(have)
  jax.tree.map(np.testing.assert_array_equal, want, have)


def residuals(remat, *, train=False, **section):
  """Returns the activations saved per layer, as (shape, dtype)."""
  model = build(remat=remat, depth=4, mlp_dim=64, **section)
  # The leaves of the function that computes gradients: parameters without
  # and activations with an axis of tokens.
  saved = jax.eval_shape(lambda p, key: jax.vjp(
      lambda p: model.apply(
          {'params': p}, IMAGES, train=train, rngs={'dropout': key})['logits'],
      p)[1], random_models.shapes_of(model, IMAGES), jax.random.key(0))
  return collections.Counter(
      (a.shape[1:], str(a.dtype)) for a in jax.tree.leaves(saved)
      if a.shape[:1] == (4,) and TOKENS in a.shape)


def test_remat_saves_less_for_the_backward_pass():
  none, dots, attention, full = (
      sum(number * np.prod(shape) for (shape, _), number in
          residuals(remat).items())
      for remat in ('none', 'dots', 'attention', 'full'))
  assert full < attention < none and full < dots < none


def check_saved_by_attention_remat(**kind):
  # Neither attention weights, nor float32 parts of norms, nor dropout's masks.
  saved = residuals('attention', train=True, dtype='bfloat16', **RANDOM, **kind)
  floats = {key: n for key, n in saved.items() if 'float' in key[1]}
  # The tokens that came in, and those after attention; queries, keys, values;
  # sums of tokens, their squares and exponentials.
  after = 0 if 'parallel' in kind else 1
  twice = 'differential' in kind
  sums = {((BATCH, TOKENS), 'float32'): 2 + 2 * after,
          ((BATCH, TOKENS, 2), 'float32'): 4 * ('qk_norm' in kind) + twice,
          ((BATCH, 2 + 2 * twice, TOKENS), 'float32'): 1}
  grouped = 2 if 'num_kv_heads' in kind else 0
  assert floats == +collections.Counter({
      ((BATCH, TOKENS, 8), 'bfloat16'): 1 + after,
      ((BATCH, TOKENS, 2, 4), 'bfloat16'): 3 - grouped,
      ((BATCH, TOKENS, 1, 4), 'bfloat16'): grouped,
      ((BATCH, TOKENS, 64), 'bfloat16'): 1, **sums})
  assert not any(dtype == 'bool' for _, dtype in saved)


def test_attention_remat_saves_projections_in_the_compute_dtype():
  check_saved_by_attention_remat()


def sites(*, train=True, **section):
  """Returns the shapes of all random bits and their number."""
  model = build(**section)
  jaxpr = jax.make_jaxpr(lambda p, key: model.apply(
      {'params': p}, IMAGES, train=train, rngs={'dropout': key})['logits'])(
          random_models.shapes_of(model, IMAGES), jax.random.key(0))
  found = collections.Counter()
  for equation, times in jaxprs.equations(jaxpr.jaxpr):
    if equation.primitive.name == 'random_bits':
      found[tuple(equation.params['shape'])] += times
  return dict(found)


@pytest.mark.parametrize(('settings', 'expected'), [
    # Appendix B.1: after every dense layer except the qkv projections, and
    # after adding position embeddings.
    ({'dropout': 0.1}, {
        (BATCH, TOKENS, 8): 1 + 3 * 2,  # Embeddings; attention and MLP out.
        (BATCH, TOKENS, 12): 3}),  # Hidden units of the MLP.
    ({'attention_dropout': 0.1}, {(BATCH, 2, TOKENS, TOKENS): 3}),
    # One number per image and branch.
    ({'stochastic_depth': 0.1}, {(BATCH, 1, 1): 3 * 2}),
    ({'train': False, **RANDOM}, {}), ({}, {})], ids=str)
def test_random_values_are_drawn_as_in_the_papers(settings, expected):
  assert sites(**settings) == expected


def test_dropout_zeroes_at_its_rate_and_keeps_the_expectation(params):
  images = jnp.tile(IMAGES[:1], (512, 1, 1, 1))
  embedded = apply(params, images, section={'dropout': 0.25}, key=0)['embedded']
  plain = apply(params, IMAGES[:1], section={})['embedded']
  assert float((embedded == 0).mean()) == pytest.approx(0.25, abs=0.01)
  kept = np.broadcast_to(plain / 0.75, embedded.shape)[embedded != 0]
  np.testing.assert_allclose(
      embedded[embedded != 0], kept, rtol=1e-5, atol=1e-6)


def test_stochastic_depth_drops_whole_images_and_keeps_the_expectation(params):
  images = jnp.tile(IMAGES[:1], (2000, 1, 1, 1))
  outputs = apply(params, images, section={'stochastic_depth': 0.6}, key=0,
                  capture=True)
  after = outputs['layers']
  before = np.concatenate([outputs['embedded'][None], after['after_mlp'][:-1]])
  attention = np.asarray(after['after_attention'] - before)
  mlp = np.asarray(after['after_mlp'] - after['after_attention'])
  for branch in (attention, mlp):  # [depth, batch, tokens, width]
    whole = (branch == 0).all(axis=(2, 3))
    # An image loses all of its branch or nearly nothing of it.
    assert ((branch == 0).mean(axis=(2, 3))[~whole] < 0.5).all()
    # The rate increases linearly with depth.
    np.testing.assert_allclose(whole.mean(axis=1), [0, 0.3, 0.6], atol=0.04)
    assert not whole[0].any()
  # The first layer drops nothing, so that all images have equal inputs of the
  # second, and equal values if they keep the branch.
  layers = apply(params, IMAGES[:1], section={}, capture=True)['layers']
  plain = np.asarray(layers['after_attention'][1] - layers['after_mlp'][0])[0]
  kept = attention[1][(attention[1] != 0).any(axis=(1, 2))]
  np.testing.assert_allclose(
      kept, np.broadcast_to(plain / 0.7, kept.shape), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize('how', [{}, *(pytest.param(
    x, marks=pytest.mark.slow) for x in ({'unroll': 3}, {'remat': 'full'}))])
def test_capture_adds_layers_and_keeps_the_logits(params, how):
  plain = apply(params, section=how)
  outputs = apply(params, section=how, capture=True)
  assert set(outputs) - set(plain) == {'layers'}
  np.testing.assert_allclose(
      outputs['logits'], plain['logits'], rtol=1e-5, atol=1e-6)
  layers = outputs['layers']
  assert {name: leaf.shape for name, leaf in layers.items()} == {
      'attention': (3, BATCH, 2, TOKENS, TOKENS),
      'after_attention': (3, BATCH, TOKENS, 8),
      'after_mlp': (3, BATCH, TOKENS, 8)}
  np.testing.assert_allclose(layers['attention'].sum(-1), 1, rtol=1e-5)
  assert (layers['attention'] > 0).all()
  last = layers['after_mlp'][-1]
  normed = (last - last.mean(-1, keepdims=True)) / jnp.sqrt(
      last.var(-1, keepdims=True) + 1e-6)
  norm = params['final_norm']
  np.testing.assert_allclose(
      outputs['tokens'], normed * norm['scale'] + norm['bias'], rtol=1e-3,
      atol=1e-4)
