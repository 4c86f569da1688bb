"""Errors of the section `optimizer`, in itself and for a model or a run."""

import re

import pytest

from tests.optim import test_optimizers


@pytest.mark.parametrize('section, words', [
    ({'name': 'adm'}, "Unknown optimizer.name 'adm'. Did you mean 'adam'? "
                      'Known: adam, sgd'),
    ({'beta2': 1.0},
     'optimizer: beta2 must be at least 0 and below 1, but is 1.0.'),
    ({'name': 'sgd', 'momentum': 0, 'nesterov': True},
     'nesterov=True needs a momentum above 0.'),
    ({'weight_decay': float('inf')},
     'weight_decay must be at least 0 and finite, but is inf.'),
    ({'clip_norm': 0.0}, 'clip_norm must be above 0 and finite'),
    ({'layer_decay': 1.5}, 'above 0 and at most 1'),
    ({'learning_rate_rules': [['head.*', 0.0]]},
     "the multiplier of 'head.*' is 0. To leave parameters untrained, name"),
    ({'weight_decay_rules': [['head.*', -1.0]]},
     "multiplier of 'head.*' must be at least 0 and finite, but is -1.0."),
    ({'weight_decay_rules': [['haed/.*', 1.0]]},
     "optimizer.weight_decay_rules: the rule 'haed/.*' matches no parameter. "
     'Parameters: body/bias, body/kernel, head/bias, head/kernel.'),
    ({'frozen': ['.*']}, "optimizer.frozen ['.*'] matches every parameter"),
])
def test_wrong_sections_are_errors(section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    test_optimizers.build(**section)


@pytest.mark.parametrize('name, section, words', [
    ('constant', {'end': 0.1}, "the schedule 'constant' has no end; only "
                               'linear and polynomial and cosine do.'),
    ('polynomial', {'power': 0.0}, 'power must be above 0'),
    ('stair', {}, 'stair needs stairs'),
    ('stair', {'stairs': [[{'steps': 9}, -1.0]]},
     "that is not negative; got [[{'steps': 9}, -1.0]]"),
    ('linear', {'end': 1.5}, 'end must be at least 0 and at most 1'),
    ('rsqrt', {'timescale': {'steps': 0}},
     'timescale must be at least one step, but is 0.'),
    ('linear', {'warmup_limit': {'steps': 1}}, 'there is none. Set warmup too'),
    ('rsqrt', {'warmup': {'percent': 60}, 'cooldown': {'steps': 5}},
     "optimizer.schedule.warmup is 6 steps ({'percent': 60}) and "
     "optimizer.schedule.cooldown is 5 steps ({'steps': 5}), but the whole "
     'run is 10 steps.'),
])
def test_wrong_schedules_are_errors(name, section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    test_optimizers.build(schedule={'name': name, **section})
