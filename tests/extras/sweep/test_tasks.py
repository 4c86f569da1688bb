"""Sweeps over tasks: the transfer of a model to several datasets."""

import json
import pathlib

import numpy as np
import pytest

from tests import toy
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax.experiment import config_file
from vit_jax.experiment import load_config
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import runs
from vit_jax.extras.sweep import tasks as tasks_lib
from vit_jax.weights import adapt

pytestmark = pytest.mark.usefixtures('one_device')

CONFIGS = pathlib.Path(__file__).parents[3] / 'configs'
TRANSFER = str(CONFIGS / 'transfer.py')
TOY = ('model.width=8', 'model.depth=1', 'model.num_heads=2',
       'model.mlp_dim=16', 'model.patch=4', 'data.resolution=8')
FIELD = 'optimizer.learning_rate'


def plan(arguments, *overrides, **options):
  return grid_lib.plan(f'{TRANSFER}:{arguments}', [*TOY, *overrides], **options)


def test_each_task_selects_on_training_images_and_is_tested_once(
    tmp_path, training):
  tasks = plan('datasets=digits,images=2+all,methods=fine-tuned', seeds=2,
               grid={FIELD: [0.001, 0.002]})
  *_, result = tasks_lib.run(tasks, tmp_path)
  assert training.names == 2 * [
      'learning_rate=0.001', 'learning_rate=0.002', 'final,seed=0',
      'final,seed=1']
  for name, steps, count in (('digits_2', 100, 2), ('digits_all', 1500, None)):
    for point in tasks[name].points:
      assert point.development.total.steps == point.config.total.steps == steps
      assert point.config.data.examples_per_class == count
      assert point.development.data.split == 'train[:80%]'
      assert [one.split for one in point.development.evals.values()] == [
          'train[80%:]']
    assert result['tasks'][name]['best']['values'] == {FIELD: 0.002}
  few, all_images = result['cells']
  configs = tasks['digits_2'].with_seeds('final', tasks['digits_2'].config)
  samples = [data.open_dataset(config.data) for config in configs.values()]
  assert [len(sample) for sample in samples] == [20, 20]
  assert len({*map(str, (s.source.parts[0][1] for s in samples))}) == 2
  assert few == {
      'task': 'digits_2', 'panel': 'digits', 'row': 'fine-tuned', 'column': '2',
      'metric': 'test/accuracy', 'mean': pytest.approx(0.052),
      'std': pytest.approx(0.1 / 2**0.5), 'runs': few['runs']}
  assert all_images['column'] == 'all'
  assert json.loads((tmp_path / 'sweep.json').read_text()) == result
  assert [*tasks_lib.run(tasks, tmp_path)][-1] == result
  assert len(training.names) == 8


def test_each_run_is_built_once_before_the_first_task_is_trained(
    tmp_path, training, monkeypatch):
  built = []

  def build(config, original=runs.build_lib.build, **options):
    built.append(config.seed)
    assert not training.names
    return original(config, **options)

  monkeypatch.setattr(runs.build_lib, 'build', build)
  file = toy.write(
      tmp_path / 'two.py', batch_size=32,
      evals={'test': {'split': 'test', 'batch_size': 120}},
      sweep={'seeds': 2, 'tasks': {'a': {}, 'b': {'seed': 7}}})
  tasks = grid_lib.plan(str(file))
  [*tasks_lib.run(tasks, tmp_path / 'sweep')]
  assert built == [0, 1, 7, 8]
  tasks['b'] = grid_lib.plan(str(file), ['seed=9'])['b']
  with pytest.raises(ValueError, match='^task b: .* holds another sweep'):
    [*tasks_lib.run(tasks, tmp_path / 'sweep')]
  assert len(training.names) == len(built) == 4


@pytest.mark.slow  # Trains.
def test_frozen_classifiers_need_one_run_per_dataset(tmp_path, capsys):
  flags = [f'--config.{each}' for each in TOY]
  assert main.main([
      'sweep', f'--config={TRANSFER}:datasets=digits,images=1+all,'
      'methods=frozen', f'--workdir={tmp_path}', *flags]) == 0
  output = capsys.readouterr().out
  run = tmp_path / 'tasks/digits_frozen/runs/final,seed=0'
  assert [run] == [*run.parent.iterdir()]
  metrics = json.loads((run / 'summary.json').read_text())['metrics']
  cells = json.loads((tmp_path / 'sweep.json').read_text())['cells']
  assert {(cell['row'], cell['column']): cell['mean'] for cell in cells} == {
      ('probe', 'all'): metrics['probe/accuracy']} | {
      (row, count): metrics[f'test/{prefix}{count}_shot']
      for row, prefix in (
          ('linear probe', 'linear_'), ('few-shot', ''), ('k-NN', 'knn_'))
      for count in ('1', 'all')}
  assert 0.5 < metrics['test/linear_all_shot'] < 1
  cell = f'{100 * metrics["test/knn_1_shot"]:.2f} ± '
  assert cell in output.split('Mean ± standard deviation')[1]
  assert (tmp_path / 'sweep.png').exists()


def test_optimizers_are_compared_after_equally_many_runs():
  tasks = grid_lib.plan(str(CONFIGS / 'optimizers.py:steps=20'), TOY)
  names = [sweep.config.optimizer.name for sweep in tasks.values()]
  assert len({*names}) == len(tasks) > 2
  for name, sweep in tasks.items():
    assert len(sweep.points) == sweep.section.seeds == 3
    assert sweep.section.report == {f'digits/{name}/20': 'test/accuracy'}
    for point in sweep.points:
      assert point.development.data.split == 'train[:90%]'
      assert [*point.development.evals] == ['dev']


def test_means_are_over_all_panels():
  tasks = plan('datasets=digits+shapes,images=5+all')

  def done(value, names):
    return {name: {'final': {'runs': {'seed': dict.fromkeys(
        tasks[name].section.report.values(), value + i)}}}
            for i, name in enumerate(names)}

  def means(cells):
    return {(cell['row'], cell['column']): cell['mean'] for cell in cells
            if cell['panel'] == 'mean'}

  assert not means(tasks_lib.cells(tasks, done(0.1, ['digits_5'])))
  found = means(tasks_lib.cells(
      tasks, done(0.1, ['digits_5', 'shapes_5', 'digits_all'])))
  assert found == {('fine-tuned', '5'): pytest.approx(0.6)}
  uneven = done(0.1, ['digits_5', 'shapes_5'])
  uneven['digits_5']['final']['runs']['another'] = dict.fromkeys(
      tasks['digits_5'].section.report.values(), 0.3)
  mean = tasks_lib.cells(tasks, uneven)[-1]
  assert (mean['mean'], mean['std']) == (pytest.approx(0.65), None)


def test_a_reported_metric_that_the_data_lack_is_an_error_before_training(
    tmp_path, training):
  tasks = plan('datasets=shapes,images=all,methods=fine-tuned',
               'data.shapes={"label": "multi", "num_examples": 100}')
  with pytest.raises(ValueError, match="sweep.report is 'test/accuracy'"):
    next(tasks_lib.run(tasks, tmp_path))
  assert not training.names


def test_flags_take_precedence_over_tasks_which_keep_their_changes(tmp_path):
  tasks = plan('datasets=digits,images=5+all', 'total.steps=7')
  assert {sweep.config.total.steps for sweep in tasks.values()} == {7}
  assert not tasks['digits_frozen'].section.grid
  file = toy.write(tmp_path / 'own.py', **toy.CONFIG, sweep={'tasks': {'a': {
      'data': {'resolution': 16}, 'sweep': {
          'grid': {'model': {'width': [8, 16]}}}}}})
  points = grid_lib.plan(str(file))['a'].points
  assert [(p.config.model.width, p.config.data.resolution) for p in points] == [
      (8, 16), (16, 16)]


@pytest.mark.parametrize(('scratch', 'cls'), [('true', 0), ('false', 1)])
def test_the_baseline_keeps_random_weights(scratch, cls):
  config = load_config.load_one(
      f'{TRANSFER}:datasets=digits,scratch={scratch}', TOY)
  random, trained = ({'cls': np.full(2, value), 'head': {
      'bias': np.full(3, value)}} for value in (0, 1))
  start, _ = adapt.adapt(
      trained, random, config=config.init, resize=lambda _, array: array)
  assert (start['cls'] == cls).all() and not start['head']['bias'].any()


def test_a_path_may_contain_a_plus():
  content = config_file.read(f'{TRANSFER}:datasets=digits+/a++b/cats++dogs')
  assert {task['data']['source'] for task in content['sweep']['tasks'].values()
          } == {'digits', '/a+b/cats+dogs'}
