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


def test_the_first_bad_step_is_kept():
  found = health.NonFinite.none(PARAMS)
  merge = jax.jit(lambda one, other: one.merge(other))
  for new in (check(1), check(2, kernel=1e15, b=-1e-30)):
    found = merge(found, new)
  assert found.step == 0
  health.assert_finite(found, PARAMS)
  for new in (check(3, kernel=np.nan), check(4, b=np.inf, loss=np.nan)):
    found = merge(found, new)
  assert found.step == 3
  with pytest.raises(health.NonFiniteError, match=re.escape(
      'Step 3: the loss is finite; gradients not finite for 1 of 3 parameters: '
      'a/kernel. Earlier checkpoints are intact. Lower the learning rate')):
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
