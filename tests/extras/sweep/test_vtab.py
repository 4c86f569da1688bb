"""VTAB, on tiny versions of its datasets."""

import json
import pathlib

import pytest

from vit_jax import __main__ as main
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import tasks as tasks_lib
from vit_jax.extras.sweep import vtab

pytestmark = [pytest.mark.slow,  # It trains models.
              pytest.mark.usefixtures('one_device')]

VTAB = str(pathlib.Path(__file__).parents[3] / 'configs/vtab.py')
TASKS = ('dtd', 'kitti_closest_vehicle_distance')
TOY = ('--config.model.width=16', '--config.model.depth=1',
       '--config.model.num_heads=2', '--config.model.mlp_dim=32',
       '--config.model.patch=4', '--config.model.dtype=float32',
       '--config.model.pooling=average', '--config.data.resolution=8',
       '--batch-size=40', '--config.optimizer.learning_rate=0.1',
       '--config.optimizer.momentum_dtype=float32',
       '--config.checkpoint.every.percent=100', '--config.total.steps=2')


def run(workdir, data_dir, *flags, tasks=TASKS):
  task = f':task={"+".join(tasks)}' if tasks else ''
  return main.main([
      'sweep', f'--config={VTAB}{task}', f'--workdir={workdir}', *TOY,
      f'--config.data.data_dir={data_dir}', *flags])


@pytest.fixture(scope='module')
def done(one_device, tiny_vtab, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('vtab')
  assert run(workdir, tiny_vtab) == 0
  return workdir, json.loads((workdir / 'sweep.json').read_text())


def cells(result, panel):
  return {cell['column']: cell['mean'] for cell in result['cells']
          if cell['panel'] == panel}


def test_tasks_are_trained_on_1000_images_and_tested_on_all(done):
  workdir, result = done
  assert list(result['tasks']) == list(TASKS)
  for task, images in zip(TASKS, (47, 30)):
    folder = workdir / 'tasks' / task / 'runs' / 'final,seed=0'
    config = json.loads((folder / 'config.json').read_text())
    assert config['data']['source'] == f'vtab/{task}'
    assert config['data']['split'] == 'train800+val200'
    metrics = json.loads((folder / 'summary.json').read_text())['metrics']
    assert metrics['test/examples'] == images
    assert cells(result, task)['all'] == metrics['test/accuracy']


def test_a_mean_of_some_tasks_is_marked_as_partial(done, tiny_vtab, capsys):
  workdir, result = done
  natural, structured = (cells(result, task)['all'] for task in TASKS)
  assert cells(result, 'mean') == {
      'all': pytest.approx((natural + structured) / 2)}
  assert cells(result, TASKS[0])['natural'] == natural
  assert run(workdir, tiny_vtab) == 0
  output = capsys.readouterr().out
  assert 'not comparable: 2 of 19 tasks' in output
  assert f'{50 * (natural + structured):.2f} %' in output
  assert output.count('already finished') == 2


def test_missing_data_is_listed_before_training(tiny_vtab, tmp_path, capsys):
  assert run(tmp_path / 'work', tiny_vtab, tasks=()) == 2
  error = capsys.readouterr().err
  assert 'task clevr_count_all, clevr_closest_object_distance: ' in error
  assert error.count(f'tfds build clevr --data_dir={tiny_vtab} ') == 1
  assert not (tmp_path / 'work').exists()


def test_tasks_can_be_added_later(done, tiny_vtab, capsys):
  workdir, before = done
  more = (*TASKS, 'smallnorb_label_azimuth')
  assert run(workdir, tiny_vtab, tasks=more) == 0
  output = capsys.readouterr().out
  assert output.count('already finished') == 2 and '3 of 19' in output
  result = json.loads((workdir / 'sweep.json').read_text())
  assert cells(result, 'mean').keys() == {'all', 'structured'}
  added = result['tasks']['smallnorb_label_azimuth']['final']['runs']
  # The second half of its test split.
  assert added['final,seed=0']['test/examples'] == 200
  assert before['tasks'].items() <= result['tasks'].items()


def test_tasks_are_selected_by_name_or_group():
  def sources(task):
    sweeps = grid_lib.plan(f'{VTAB}:model=B/16,task={task}')
    return [sweep.config.data.source for sweep in sweeps.values()]

  assert sources('') == [
      f'vtab/{task}' for task in vtab.TASKS]
  assert sources('specialized+dtd') == [f'vtab/{task}' for task in (
      'dtd', 'patch_camelyon', 'eurosat', 'resisc45', 'diabetic_retinopathy')]
  with pytest.raises(ValueError, match="'structurd' is none of the groups"):
    sources('structurd')


def test_means_are_over_tasks_and_their_deviation_over_seeds():
  sweeps = grid_lib.plan(f'{VTAB}:model=B/16', seeds=3)
  found = tasks_lib.cells(sweeps, {
      name: {'final': {'runs': {str(seed): {
          'test/accuracy': 0.5 + 0.01 * seed + 0.001 * i}
                                for seed in range(3)}}}
      for i, name in enumerate(sweeps)})
  means = {cell['column']: cell for cell in found if cell['panel'] == 'mean'}
  assert means.keys() == {'natural', 'specialized', 'structured', 'all'}
  assert means['all']['mean'] == pytest.approx(0.51 + 0.001 * 9)
  assert means['all']['std'] == pytest.approx(0.01)
  assert means['natural']['mean'] == pytest.approx(0.51 + 0.001 * 3)


def test_each_task_may_select_a_learning_rate():
  sweeps = grid_lib.plan(
      f'{VTAB}:model=B/16', grid={'optimizer.learning_rate': ['0.003', '0.01']})
  for sweep in sweeps.values():
    assert [point.development.data.split for point in sweep.points] == [
        'train800'] * 2
    assert sweep.section.metric == 'dev/accuracy'
