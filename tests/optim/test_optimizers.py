"""Optimizers against formulas in NumPy, and rules over parameter paths."""


import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from tests import leaves
from tests import random_models
from vit_jax import optim
from vit_jax import registry
from vit_jax import tree

TOTAL = 10
NAMES = [name.replace('NAME', 'lion')
         for name, target in registry.OPTIMIZERS.items()
         if leaves.has(target) and name != 'schedule_free']


def to_steps(duration):
  return duration.to_steps(batch_size=1, num_examples=1, total_steps=TOTAL)


def random(rng, shapes):
  return jax.tree.map(
      lambda shape: rng.normal(size=shape).astype(np.float32), shapes,
      is_leaf=lambda node: isinstance(node, tuple))


SHAPES = {
    'body': {'kernel': (3, 4), 'bias': (4,)},
    'head': {'kernel': (4, 2), 'bias': (2,)},
}
PARAMS = random(np.random.default_rng(0), SHAPES)
GRADS = [random(np.random.default_rng(1 + step), SHAPES)
         for step in range(TOTAL)]


def parse(name='adam', **section):
  defaults = {'name': name, 'learning_rate': 0.1,
              'schedule': {'name': 'linear', 'warmup': {'steps': 3}}}
  if name == 'muon':
    defaults['matrices'] = '.*kernel'
  return optim.parse(defaults | section)


def build(name='adam', params=PARAMS, **section):
  return optim.build(
      parse(name, **section), params, total_steps=TOTAL, to_steps=to_steps)


def run(optimizer, params=PARAMS, grads=GRADS):
  """Returns the parameters by name after one update per gradient."""
  update = jax.jit(optimizer.tx.update)
  state = optimizer.tx.init(params)
  for grad in grads:
    updates, state = update(grad, state, params)
    params = optax.apply_updates(params, updates)
  return {k: np.asarray(v) for k, v in tree.flatten(params).items()}


def rate(step):
  """Learning rate of the default schedule."""
  return 0.1 * (step / 3 if step < 3 else 1 - (step - 3) / 7)


def plain_sgd():
  return lambda g, step: g


def numpy_run(
    make, *, decay=None, multiplier=None, frozen=(), clip=None, rate=rate,
    params=PARAMS, grads=GRADS):
  """The update in the docstring of `optim.optimizers`."""
  decay, multiplier = decay or {}, multiplier or {}
  params = {k: v.astype(np.float64) for k, v in tree.flatten(params).items()}
  rules = {name: make() for name in params}
  for step, grad in enumerate(grads):
    grad = {k: v.astype(np.float64) for k, v in tree.flatten(grad).items()
            if k not in frozen}
    if clip is not None:
      norm = np.sqrt(sum((g ** 2).sum() for g in grad.values()))
      grad = {k: g * min(1.0, clip / norm) for k, g in grad.items()}
    for name, g in grad.items():
      u = rules[name](g, step) + decay.get(name, 0.0) * params[name]
      params[name] = params[name] - (rate(step) * multiplier.get(name, 1.0) * u)
  return params


@pytest.mark.parametrize('name, section, reference', [
    ('adam', {'beta1': 0.5, 'beta2': 0.8, 'epsilon': 0.1},
     lambda rate: optax.adam(rate, 0.5, 0.8, 0.1)),
    ('sgd', {}, lambda rate: optax.sgd(rate, 0.9)),
    ('sgd', {'nesterov': True}, lambda rate: optax.sgd(rate, 0.9, True)),
    ('sgd', {'momentum': 0.0}, optax.sgd)])
def test_adam_and_sgd_are_those_of_optax(name, section, reference):
  optimizer = build(name, **section)
  alone = optim.Optimizer(
      reference(optimizer.schedule), optimizer.schedule, None)
  random_models.assert_close(run(optimizer), run(alone), rtol=1e-6)


ZEROS = jax.tree.map(np.zeros_like, PARAMS)


@pytest.mark.parametrize('name', NAMES)
def test_weight_decay_alone_shrinks_kernels_by_rate_times_decay(name):
  got = run(build(name, weight_decay=0.1, schedule={'name': 'constant'}),
            grads=[ZEROS] * 2)
  np.testing.assert_allclose(
      got['body/kernel'], 0.99 ** 2 * PARAMS['body']['kernel'], rtol=1e-6)
  np.testing.assert_array_equal(got['body/bias'], PARAMS['body']['bias'])


def test_weights_may_decay_towards_their_first_values():
  optimizer = build(weight_decay=0.1, decay_towards='start',
                    schedule={'name': 'constant'})
  random_models.assert_close(
      run(optimizer, grads=[ZEROS] * 2), tree.flatten(PARAMS))
  moved = jax.tree.map(lambda p: p + 1, PARAMS)
  updates, _ = optimizer.tx.update(ZEROS, optimizer.tx.init(PARAMS), moved)
  # The learning rate is 0.1.
  np.testing.assert_allclose(updates['body']['kernel'], -0.01, rtol=1e-6)
  np.testing.assert_array_equal(updates['body']['bias'], 0)


def test_rules_multiply_weight_decay_and_learning_rate():
  got = run(build(
      'sgd', momentum=0.0, weight_decay=0.1,
      weight_decay_rules=[['head/kernel', 10.0], ['.*kernel', 1.0],
                          ['body/bias', 0.5]],
      learning_rate_rules=[['head/.*', 10.0], ['.*bias', 0.5]]))
  random_models.assert_close(got, numpy_run(
      plain_sgd,
      decay={'head/kernel': 1.0, 'body/kernel': 0.1, 'body/bias': 0.05},
      multiplier={'head/kernel': 10.0, 'head/bias': 10.0, 'body/bias': 0.5}))


@pytest.mark.parametrize('clip, frozen', [
    (0.5, ()), (3.0, ()), (0.5, ('body/kernel', 'body/bias'))])
def test_gradients_are_clipped_to_the_norm_of_trained_parameters(clip, frozen):
  random_models.assert_close(
      run(build('sgd', momentum=0.0, clip_norm=clip, frozen=frozen)),
      numpy_run(plain_sgd, clip=clip, frozen=frozen))


@pytest.mark.parametrize('name', NAMES)
def test_frozen_parameters_have_no_state_and_do_not_change(name):
  frozen = ['body/.*', 'head/bias']
  grads = jax.tree.map(np.copy, GRADS)
  for grad in grads:
    grad['body']['kernel'][:] = np.nan
    grad['body']['bias'][:] = np.inf
  optimizer = build(name, weight_decay=0.1, clip_norm=1.0, frozen=frozen,
                    learning_rate_rules=[['.*', 2.0]])
  got = run(optimizer, grads=grads)
  for key in ('body/kernel', 'body/bias', 'head/bias'):
    np.testing.assert_array_equal(got[key], tree.flatten(PARAMS)[key])
  assert np.isfinite(got['head/kernel']).all()
  assert (got['head/kernel'] != PARAMS['head']['kernel']).all()
  assert not [n for n in tree.flatten(optimizer.tx.init(PARAMS)) if 'body' in n]
  assert tree.flatten(optimizer.trainable) == {
      'body/bias': False, 'body/kernel': False,
      'head/bias': False, 'head/kernel': True}


def state_names(name, **section):
  return tree.flatten(jax.eval_shape(build(name, **section).tx.init, PARAMS))


def test_state_paths_are_optimizer_moment_parameter_and_never_change():
  moments = [f'adam/{moment}/{part}/{leaf}' for moment in ('mu', 'nu')
             for part in ('body', 'head') for leaf in ('bias', 'kernel')]
  for section in ({}, {'weight_decay': 0.1, 'clip_norm': 1.0,
                       'learning_rate_rules': [['head/.*', 2.0]]}):
    assert list(state_names('adam', **section)) == [
        'adam/count', *moments, 'learning_rate/count']
  assert 'sgd/trace/head/kernel' in state_names('sgd')


@pytest.mark.parametrize('name', NAMES)
def test_state_that_mirrors_a_parameter_ends_with_its_path(name):
  names = state_names(name, frozen=['body/bias'], weight_decay=0.1)
  params = tree.flatten(PARAMS)
  for key, leaf in names.items():
    if key.endswith('/count'):
      assert leaf.shape == () and leaf.dtype == jnp.int32
      continue
    if key.endswith('/ns_coeffs'):  # Muon's polynomial.
      assert leaf.shape == (3,)
      continue
    owners = [p for p in params if key.endswith(f'/{p}')]
    assert len(owners) == 1, key
    if name != 'adafactor' or '/ema/' in key:
      assert leaf.shape == params[owners[0]].shape


@pytest.mark.parametrize('name', NAMES)
def test_momentum_dtype_changes_the_momentum_only(name):
  for key, leaf in state_names(name, momentum_dtype='bfloat16').items():
    if '/mu/' in key or '/trace/' in key:
      assert leaf.dtype == jnp.bfloat16
    elif '/nu/' in key:
      assert leaf.dtype == jnp.float32


@pytest.mark.parametrize('name', NAMES)
def test_nothing_is_allocated_before_init(name):
  huge = {'kernel': jax.ShapeDtypeStruct((10 ** 6, 10 ** 6), jnp.float32)}
  optimizer = build(name, huge, weight_decay=0.1, clip_norm=1.0,
                    learning_rate_rules=[['.*', 2.0]])
  state = jax.eval_shape(optimizer.tx.init, huge)
  updates, after = jax.eval_shape(optimizer.tx.update, huge, state, huge)
  assert updates == huge
  assert after == state


@pytest.mark.parametrize('name', sorted({*NAMES} - {'muon'}))
def test_default_rules_may_match_nothing(name, **section):
  params = {'scale': np.ones(3, np.float32)}
  optimizer = build(name, params, weight_decay=0.1, **section)
  got = run(optimizer, params, [{'scale': np.zeros(3, np.float32)}])
  np.testing.assert_array_equal(got['scale'], params['scale'])
