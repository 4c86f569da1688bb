"""Means over tasks: VTAB, on tiny versions of its datasets."""

import json
import pathlib

import pytest

from vit_jax import __main__ as main
from vit_jax import sweep as sweep_lib
from vit_jax.data import vtab
from vit_jax.sweep import mean as mean_lib

pytestmark = [pytest.mark.slow,  # It trains models.
              pytest.mark.usefixtures('one_device')]

VTAB = str(pathlib.Path(__file__).parents[2] / 'configs/vtab.py')
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


def test_tasks_are_trained_on_1000_images_and_tested_on_all(done):
  workdir, result = done
  assert list(result['points']) == [f'source=vtab-{task}' for task in TASKS]
  for task, row, images in zip(TASKS, result['points'].values(), (47, 30)):
    folder = workdir / 'runs' / f'source=vtab-{task},seed=0'
    config = json.loads((folder / 'config.json').read_text())
    assert config['data']['source'] == f'vtab/{task}'
    assert config['data']['split'] == 'train800+val200'
    metrics = json.loads((folder / 'summary.json').read_text())['metrics']
    assert metrics['test/examples'] == row['examples'] == images
    assert metrics['test/accuracy'] == row['mean']


def test_a_mean_of_some_tasks_is_marked_as_partial(done, tiny_vtab, capsys):
  workdir, result = done
  scores = [row['mean'] for row in result['points'].values()]
  assert result['mean']['mean'] == pytest.approx(sum(scores) / 2)
  assert {group: row['mean'] for group, row in result['groups'].items()} == {
      'natural': scores[0], 'specialized': None, 'structured': scores[1]}
  assert run(workdir, tiny_vtab) == 0
  output = capsys.readouterr().out
  for text in ('all: not comparable', '2 of 19', '0 of 4', '1 of 7', '1 of 8',
               f'{100 * result["mean"]["mean"]:.2f} %'):
    assert text in output
  assert output.count('already finished') == 2


def test_missing_data_is_listed_before_training(tiny_vtab, tmp_path, capsys):
  assert run(tmp_path / 'work', tiny_vtab, tasks=()) == 2
  error = capsys.readouterr().err
  assert ('run source=vtab-clevr_count_all,seed=0, '
          'source=vtab-clevr_closest_object_distance,seed=0: ') in error
  assert error.count(f'tfds build clevr --data_dir={tiny_vtab} ') == 1
  assert not (tmp_path / 'work').exists()


def test_tasks_can_be_added_later(done, tiny_vtab, capsys):
  workdir, before = done
  more = (*TASKS, 'smallnorb_label_azimuth')
  assert run(workdir, tiny_vtab, tasks=more) == 0
  output = capsys.readouterr().out
  assert output.count('already finished') == 2 and '3 of 19' in output
  result = json.loads((workdir / 'sweep.json').read_text())
  added = result['points']['source=vtab-smallnorb_label_azimuth']
  assert added['examples'] == 200  # The second half of its test split.
  assert before['points'].items() <= result['points'].items()


def test_tasks_are_selected_by_name_or_group():
  def sources(task):
    sweep = sweep_lib.plan(f'{VTAB}:model=B/16,task={task}')
    return [point.values['data.source'] for point in sweep.points]

  assert sources('') == [
      f'vtab/{task}' for task in vtab.TASKS]
  assert sources('specialized+dtd') == [f'vtab/{task}' for task in (
      'dtd', 'patch_camelyon', 'eurosat', 'resisc45', 'diabetic_retinopathy')]
  with pytest.raises(ValueError, match="'structurd' is none of the groups"):
    sources('structurd')


def test_the_result_is_the_mean_of_tasks_over_seeds():
  sweep = sweep_lib.plan(f'{VTAB}:model=B/16', seeds=3)
  metrics = {
      run: {'test/accuracy': 0.5 + 0.01 * config.seed + 0.001 * i,
            'test/examples': 10.0}
      for i, point in enumerate(sweep.points)
      for run, config in sweep.with_seeds(point.name, point.config).items()}
  result = mean_lib.summarise(sweep, metrics)
  assert [row['count'] for row in result['groups'].values()] == [7, 4, 8]
  assert result['mean']['count'] == result['mean']['total'] == 19
  assert result['mean']['mean'] == pytest.approx(0.51 + 0.001 * 9)
  assert result['mean']['std'] == pytest.approx(0.01)
  assert result['groups']['natural']['mean'] == pytest.approx(0.51 + 0.001 * 3)


def test_a_mean_over_tasks_has_no_soup():
  with pytest.raises(ValueError, match="soup is 'greedy', but with result"):
    sweep_lib.plan(f'{VTAB}:model=B/16', soup='greedy')
