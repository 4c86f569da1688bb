"""The first step that is not finite is kept and reported."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.training import health

PARAMS = {'a': {'kernel': jnp.ones((2, 3)), 'bias': jnp.ones(3)},
          'b': jnp.ones(())}
NAMES = ['a/bias', 'a/kernel', 'b']


def check(step, *, loss=1.0, **bad):
  """Checks a step whose gradients hold the values of `bad`, by leaf."""
  grads = {'a': {'kernel': PARAMS['a']['kernel'].at[1, 2].set(
      bad.get('kernel', 1.0)), 'bias': PARAMS['a']['bias'].at[0].set(
          bad.get('bias', 1.0))}, 'b': jnp.asarray(bad.get('b', 1.0))}
  return health.NonFinite.check(
      jnp.asarray(loss), grads, step=jnp.asarray(step, jnp.int32))


def test_finite_passes():
  found = health.NonFinite.none(PARAMS)
  for step in (1, 2, 3):
    found = jax.jit(lambda a, b: a.merge(b))(
        found, check(step, kernel=1e15, b=-1e-30))
  assert found.step == 0
  health.assert_finite(found, PARAMS)


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('leaf, flags', [
    ('bias', [1, 0, 0]), ('kernel', [0, 1, 0]), ('b', [0, 0, 1]),
    ('loss', [0, 0, 0])])
def test_the_loss_and_each_gradient_are_checked(leaf, flags, value):
  found = check(7, **{leaf: value})
  assert found.step == 7
  assert found.loss == (leaf == 'loss')
  np.testing.assert_array_equal(found.gradients, flags)


def test_first_bad_step_is_kept_with_its_names():
  found = health.NonFinite.none(PARAMS)
  for new in (check(1), check(2, kernel=np.nan),
              check(3, b=np.inf, loss=np.nan), check(4)):
    found = found.merge(new)
  assert found.step == 2
  assert not found.loss
  np.testing.assert_array_equal(found.gradients, [0, 1, 0])


@pytest.mark.parametrize('found, words', [
    (check(12, kernel=np.nan),
     'Step 12: the loss is finite; gradients not finite for 1 of 3 parameters: '
     'a/kernel. Earlier checkpoints are intact. Lower the '
     'learning rate'),
    (check(3, loss=np.nan, bias=np.inf, b=np.nan),
     'Step 3: the loss is not finite; gradients not finite for 2 of 3 '
     'parameters: a/bias, b. Earlier checkpoints'),
])
def test_error_names_step_and_parameters(found, words):
  with pytest.raises(health.NonFiniteError, match='^' + re.escape(words)):
    health.assert_finite(found, PARAMS)
