"""Parsing section `optimizer`."""

import re

import pytest

from vit_jax.optim import config as optim_config


def parse(name, **section):
  return optim_config.parse({
      'name': name, 'learning_rate': 0.1,
      'schedule': {'name': 'linear', 'warmup': {'steps': 3}}} | section)


@pytest.mark.parametrize('name, section, words', [
    ('adm', {}, "Unknown optimizer.name 'adm'. Did you mean 'adam'? Known: "
     'adam, sgd, muon, '),
    ('lion', {}, "Did you mean 'optax.lion'?"),
    ('optax.contrib.schedule_free_sgd', {}, 'Unknown optimizer.name'),
    ('optax.lion', {'arguments': {'b_1': 0.9}},
     "Unknown argument of optax.lion 'b_1'. Did you mean 'b1'?"),
    ('optax.rprop', {'momentum_dtype': 'bfloat16'},
     'optax.rprop has no momentum_dtype'),
    ('adam', {'beta2': 1.0}, 'optimizer: beta2 must be at least 0 and below 1, '
                             'but is 1.0.'),
    ('sgd', {'momentum': 0, 'nesterov': True},
     'nesterov=True needs a momentum above 0.'),
    ('adam', {'weight_decay': float('inf')},
     'weight_decay must be at least 0 and finite, but is inf.'),
    ('adam', {'clip_norm': 0.0}, 'clip_norm must be above 0 and finite'),
    ('adam', {'learning_rate_rules': [['head.*', 0.0]]},
     "the multiplier of 'head.*' is 0. To leave parameters untrained, name"),
    ('adam', {'weight_decay_rules': [['head.*', -1.0]]},
     "multiplier of 'head.*' must be at least 0 and finite, but is -1.0."),
])
def test_wrong_section_is_an_error(name, section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    parse(name, **section)
