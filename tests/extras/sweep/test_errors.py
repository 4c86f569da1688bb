"""Sweeps that cannot be planned, or that would be trained in vain."""

import re

import pytest

from tests import toy
from tests.extras.sweep import test_development_split
from tests.extras.sweep import test_tasks
from vit_jax.experiment import config as config_lib
from vit_jax.extras.sweep import config as sweep_config
from vit_jax.extras.sweep import development_split
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import soup
from vit_jax.extras.sweep import sweep as sweep_lib
from vit_jax.extras.sweep import tasks as tasks_lib

pytestmark = pytest.mark.usefixtures('one_device')

# Each row of a table: the arguments of a call, and a part of its error.
PLANS = [
    (['optimizer.learning_rate=0.1,abc'], [], {},
     'at optimizer.learning_rate=abc: optimizer.learning_rate must be float, '
     "but is 'abc'"),
    (['data.split=train'], [], {}, 'data.split cannot be swept'),
    (['averaging=0.9,9e-1'], [], {}, 'each once'),
    (['batch_size=8,'], [], {}, '--grid takes'),
    (['batch_size=8', 'batch_size=9'], [], {}, 'names batch_size twice'),
    ([], [], {'metric': 'dev/acuracy'},
     "sweep.metric 'acuracy'. Did you mean 'accuracy'"),
    ([], [], {'metric': 'test/accuracy'}, "no evaluator is called 'test'"),
    ([], [], {'seeds': 0}, 'seeds must be at least 1'),
    ([], [], {'held_out': 0}, 'held_out must be at least 1 and below 100'),
    ([], ['data.split=train[:50%]'], {}, 'what else to hold out'),
    *(([], test_development_split.MASKED, {
        'metric': 'dev/loss', 'development': {'data': {'split': 'train[:80%]'},
        'evals': {'dev': {'name': name, 'split': 'train[80%:]'}}}},
       'masked_patch trains no head')
      for name in ('classification', 'calibration'))]
RUNS = [
    (['model.patch=4,3'], [], {}, 'run patch=3: An image of 8x8'),
    *(([], overrides, {'metric': metric},
       f"'{metric}', which is not measured.*{instead}")
      for overrides, metric, instead in (
          (test_development_split.MULTI_LABEL, 'dev/accuracy',
           'dev/precision_at_1'),
          ((), 'dev/precision_at_1', 'dev/accuracy')))]
SPLITS = [
    ('train', 'dev', 'test', "'test' of the final evaluator 'test'"),
    ('train[:80%]', 'dev', 'train[80%:]+test[7:8]', "final evaluator 'test'"),
    ('train[:50%]+train[60%:]', 'dev', 'train[50%:61%]', 'of the training'),
    ('train', 'test', 'test', 'no evaluator for the final runs')]
SOUPS = [
    (['optimizer.learning_rate=0.1'], 'there is only one'),
    (['model.width=8,16'], 'model.width is 8 in the run width=8 and 16 in'),
    (['data.resolution=8,16'], 'data.resolution is')]
TASKS = [
    ('digits', {'report': {'a/b': 'test/accuracy'}}, 'form PANEL/ROW/COLUMN'),
    ('digits', {'soup': 'greedy'}, "soup is 'greedy', but different tasks"),
    ('a/x+b/x', {}, 'two have the same last name')]


def plan(file, grid, overrides=(), section=()):
  return grid_lib.plan(file, overrides, grid=grid_lib.parse_flags(grid),
                       **dict(section))['']


def run(file, root, *arguments):
  sweep_lib.run(plan(file, *arguments), root)


def run_with_splits(file, root, train, name, split):
  sweep_lib.run(grid_lib.plan(file, metric=f'{name}/accuracy', development={
      'data': {'split': train}, 'evals': {name: {'split': split}}})[''], root)


def run_tasks(_, root):
  tasks = test_tasks.plan('datasets=digits,images=all,methods=fine-tuned',
                          'evals.test.name=calibration')
  next(tasks_lib.run(tasks, root))


def hold_out_of_a_mixture(*_):
  development_split.overrides(config_lib.resolve(toy.config(data={
      'mixture': [{'source': 'shapes'}, {'source': 'digits'}]})),
                              sweep_config.SweepConfig())


@pytest.mark.parametrize(('call', 'arguments', 'message'), [
    (call, arguments, message) for call, rows in (
        (lambda file, _, *arguments: plan(file, *arguments), [
            (*arguments, re.escape(words)) for *arguments, words in PLANS]),
        (lambda _, root, name, grid: plan(
            f'{test_tasks.CONFIGS}/{name}', grid), [
            ('quickstart.py', ['batch_size=8'], 'has the stages'),
            ('cifar10.py', [], '--grid optimizer.learning_rate=')]),
        (lambda _, root, text: sweep_config.SweepConfig(grid={'a': (text,)}), [
            (text, 'log:LOW:HIGH:COUNT with 0 < LOW') for text in (
                'log:0:1:3', 'log:1:0.1:3', 'log:0.1:1:1', 'log:0.1:1',
                'log:a:1:3')]),
        (run, RUNS), (run_with_splits, SPLITS),
        (run_tasks, [["sweep.report 'accuracy'"]]),
        (hold_out_of_a_mixture, [['Sweep on one of its sources']]),
        (lambda file, _, grid: soup.check(
            plan(file, grid, (), {'soup': 'greedy'})), SOUPS),
        (lambda _, root, datasets, section: test_tasks.plan(
            f'datasets={datasets}', **section), TASKS),
    ) for *arguments, message in rows])
def test_an_error_names_its_cause_before_training(
    file, tmp_path, training, call, arguments, message):
  with pytest.raises(ValueError, match=message):
    call(file, tmp_path, *arguments)
  assert not training.names and not list(tmp_path.iterdir())
