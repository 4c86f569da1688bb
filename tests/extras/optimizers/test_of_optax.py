"""Optimizers of Optax with our settings; errors of the leaf `optimizers`."""

import re

import jax
import numpy as np
import optax
import optax.contrib
import pytest

from tests import random_models
from tests import toy
from tests.optim import test_optimizers as common
from vit_jax import optim


@pytest.mark.parametrize('name, arguments, reference', [
    ('optax.lion', {'b1': 0.95}, optax.lion),
    ('optax.contrib.ademamix', {}, optax.contrib.ademamix)])
def test_optax_optimizer_equals_optax_with_the_same_settings(
    name, arguments, reference):
  optimizer = common.build(name, arguments=arguments, weight_decay=0.5)
  alone = optim.Optimizer(
      reference(optimizer.schedule, **arguments, weight_decay=0.5,
                mask={part: {'kernel': True, 'bias': False}
                      for part in common.SHAPES}), optimizer.schedule, None)
  random_models.assert_close(
      common.run(optimizer), common.run(alone), rtol=1e-6)


def test_lars_scales_kernels_but_not_biases():
  # The probe of MAE: 6 steps of a constant gradient.
  start = {'body': common.PARAMS['body'],
           'head': {'kernel': np.full((4, 2), 0.5, np.float32),
                    'bias': np.zeros(2, np.float32)}}
  gradient = jax.tree.map(np.ones_like, start)
  found = common.run(common.build(
      'optax.lars', start, arguments={'momentum': 0.9}, learning_rate=6.4,
      schedule={'name': 'constant'}, frozen=[r'(?!head/).*']),
              start, [gradient] * 6)
  # Independent: u = 0.001 |p| / |g| g for kernels, g for biases.
  kernel, bias, momenta = 0.5, 0.0, [0.0, 0.0]
  for _ in range(6):
    momenta = [0.9 * momenta[0] + 0.001 * abs(kernel), 0.9 * momenta[1] + 1]
    kernel, bias = kernel - 6.4 * momenta[0], bias - 6.4 * momenta[1]
  np.testing.assert_allclose(found['head/kernel'], kernel, rtol=1e-5)
  np.testing.assert_allclose(found['head/bias'], bias, rtol=1e-5)


LAYERS = {'encoder': {'layers': {'kernel': np.ones((3, 2))}}}
CONSTANT = {'schedule': {'name': 'constant'}}


@pytest.mark.parametrize(('name', 'section', 'words'), [
    ('optax.lin', {}, "Unknown name 'optax.lin'. Did you mean 'optax.lion'?"),
    ('optax.contrib.schedule_free_sgd', {}, 'Unknown name'),
    ('optax.contrib.madgrad', {}, 'Unknown name'),
    ('optax.contrib.muon', {}, 'Unknown name'),
    ('optax.lion', {'arguments': {'b_1': 0.9}},
     "Unknown argument of optax.lion 'b_1'. Did you mean 'b1'?"),
    ('optax.noisy_sgd', {}, 'checkpoints cannot hold its state'),
    ('optax.lamb', {'momentum_dtype': 'bfloat16'},
     'optax.lamb has no momentum_dtype'),
    # They need more than gradients.
    ('optax.lbfgs', {}, "missing 3 required keyword-only arguments: 'value'"),
    ('optax.contrib.dpsgd', {}, 'missing 3 required positional arguments'),
    ('adafactor', {'factored': '.*/kernels'},
     "optimizer.factored: the rule '.*/kernels' matches no parameter."),
    ('adam', {'params': LAYERS, 'frozen_layers': 4},
     'frozen_layers is 4, but the model has 3 layers'),
    ('adam', {'frozen_layers': 1}, 'model has 0 layers'),
    ('schedule_free', {},
     "schedule.name is 'linear', but schedule_free needs 'constant'."),
    ('schedule_free',
     {'schedule': {**CONSTANT['schedule'], 'cooldown': {'steps': 5}}},
     'but schedule_free needs None.'),
    ('schedule_free', {**CONSTANT, 'frozen_layers': 2},
     'frozen_layers is 2, but schedule_free needs 0.'),
    ('schedule_free', {**CONSTANT, 'beta1': 0.0}, 'beta1 must be above 0')])
def test_wrong_settings_are_errors(name, section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    common.build(name, **section)


def test_schedule_free_has_no_second_average():
  with pytest.raises(ValueError, match='has its own average. Set averaging'):
    toy.build(optimizer={'name': 'schedule_free'}, averaging=0.9)
