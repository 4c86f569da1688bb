"""Command `vtab`, on tiny versions of its datasets."""

import json

import pytest

from vit_jax import __main__ as main
from vit_jax.commands import vtab as command
from vit_jax.data import vtab

pytestmark = [pytest.mark.slow,  # It trains models.
              pytest.mark.usefixtures('one_device')]

TASKS = ('dtd', 'kitti_closest_vehicle_distance')
TOY = ('--config.model.width=16', '--config.model.depth=1',
       '--config.model.num_heads=2', '--config.model.mlp_dim=32',
       '--config.model.patch=4', '--config.model.dtype=float32',
       '--config.model.pooling=average', '--config.data.resolution=8',
       '--config.batch_size=40', '--config.optimizer.learning_rate=0.1',
       '--config.optimizer.momentum_dtype=float32',
       '--config.checkpoint.every.percent=100', '--config.total.steps=2')


def run(workdir, data_dir, *flags):
  return main.main(['vtab', f'--workdir={workdir}', *TOY,
                    f'--config.data.data_dir={data_dir}', *flags])


@pytest.fixture(scope='module')
def done(one_device, tiny_vtab, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('vtab')
  assert run(workdir, tiny_vtab, f'--tasks={",".join(TASKS)}') == 0
  return workdir, json.loads((workdir / 'vtab.json').read_text())


def test_tasks_are_trained_on_1000_images_and_tested_on_all(done):
  workdir, result = done
  assert list(result['tasks']) == list(TASKS)
  for task, images in zip(TASKS, (47, 30)):
    folder = workdir / 'runs' / f'{task},seed=0'
    config = json.loads((folder / 'config.json').read_text())
    assert config['data']['source'] == f'vtab/{task}'
    assert config['data']['split'] == 'train800+val200'
    metrics = json.loads((folder / 'summary.json').read_text())['metrics']
    assert metrics['test/examples'] == result['tasks'][task]['images'] == images
    assert metrics['test/accuracy'] == result['tasks'][task]['mean']


def test_a_mean_of_some_tasks_is_marked_as_partial(
    done, tiny_vtab, capsys):
  workdir, result = done
  scores = [result['tasks'][task]['mean'] for task in TASKS]
  assert result['mean']['mean'] == pytest.approx(sum(scores) / 2)
  assert {group: row['mean'] for group, row in result['groups'].items()} == {
      'natural': scores[0], 'structured': scores[1]}
  assert result['partial'] and result['num_tasks'] == 2
  assert run(workdir, tiny_vtab, f'--tasks={",".join(TASKS)}') == 0
  output = capsys.readouterr().out
  assert 'mean of 2 of 19 tasks: not comparable' in output
  assert '1 of 8' in output and '1 of 7' in output
  assert output.count('already finished') == 2
  assert f'{100 * result["mean"]["mean"]:.2f} %' in output


def test_missing_data_is_listed_before_training(
    tiny_vtab, tmp_path, capsys):
  assert run(tmp_path / 'work', tiny_vtab, '--config.total.steps=1') == 2
  error = capsys.readouterr().err
  assert '15 of the 19 tasks have no data here' in error
  assert (f'tfds build clevr --data_dir={tiny_vtab} '
          '--file_format=array_record\n      (clevr_count_all, '
          'clevr_closest_object_distance)') in error
  assert '--skip-missing' in error
  assert not (tmp_path / 'work').exists()


def test_missing_tasks_can_be_skipped_and_added_later(
    done, tiny_vtab, capsys):
  workdir, before = done
  more = ','.join([*TASKS, 'specialized', 'dmlab', 'smallnorb_label_azimuth'])
  assert run(workdir, tiny_vtab, f'--tasks={more}', '--skip-missing') == 0
  output = capsys.readouterr().out
  assert 'skipped: dmlab' in output
  assert output.count('already finished') == 2
  assert 'mean of 3 of 19 tasks: not comparable' in output
  result = json.loads((workdir / 'vtab.json').read_text())
  added = result['tasks']['smallnorb_label_azimuth']
  assert added['images'] == 200  # The second half of its test split.
  assert list(result['missing']) == [
      'patch_camelyon', 'eurosat', 'resisc45', 'diabetic_retinopathy', 'dmlab']
  assert result['tasks'][TASKS[1]] == before['tasks'][TASKS[1]]


def test_other_settings_in_the_same_folder_are_errors(
    done, tiny_vtab, capsys):
  assert run(done[0], tiny_vtab, '--tasks=dtd', '--config.total.steps=61') == 2
  error = capsys.readouterr().err
  assert 'another VTAB evaluation' in error and 'total.steps: 2 -> 61' in error


def test_tasks_are_selected_by_name_or_group():
  assert command.select_tasks('') == list(vtab.TASKS)
  assert command.select_tasks('specialized,dtd') == [
      'dtd', 'patch_camelyon', 'eurosat', 'resisc45', 'diabetic_retinopathy']
  with pytest.raises(ValueError, match="Did you mean 'structured'"):
    command.select_tasks('structurd')


def test_the_score_is_the_mean_of_tasks_over_seeds():
  metrics = {task: {seed: {'test/accuracy': 0.5 + 0.01 * seed + 0.001 * i,
                           'test/examples': 10.0}
                    for seed in range(3)}
             for i, task in enumerate(vtab.TASKS)}
  result = command.summarise(metrics)
  assert not result['partial'] and result['num_tasks'] == 19
  assert result['mean']['mean'] == pytest.approx(0.51 + 0.001 * 9)
  assert result['mean']['std'] == pytest.approx(0.01)
