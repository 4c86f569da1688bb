"""VTAB, on tiny versions of its datasets."""

import json
import pathlib

import pytest

from vit_jax import __main__ as main
from vit_jax import data
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import tasks as tasks_lib
from vit_jax.extras.sweep import vtab

pytestmark = pytest.mark.usefixtures('one_device')

VTAB = str(pathlib.Path(__file__).parents[3] / 'configs/vtab.py')
TASKS = ('dtd', 'kitti_closest_vehicle_distance')
TOY = ('model.width=16', 'model.depth=1', 'model.num_heads=2',
       'model.mlp_dim=32', 'model.patch=4', 'model.pooling=average',
       'data.resolution=8', 'batch_size=40', 'total.steps=2',
       'optimizer.momentum_dtype=float32')


def run(workdir, data_dir, tasks=TASKS):
  """Runs the command; returns its status, and the result if there is one."""
  task = f':task={"+".join(tasks)}' if tasks else ''
  status = main.main([
      'sweep', f'--config={VTAB}{task}', f'--workdir={workdir}',
      f'--config.data.data_dir={data_dir}', *(f'--config.{x}' for x in TOY)])
  file = workdir / 'sweep.json'
  return status, json.loads(file.read_text()) if file.exists() else None


def test_tasks_are_trained_on_1000_images_and_tested_on_all(tiny_vtab):
  sweeps = grid_lib.plan(
      f'{VTAB}:task={"+".join(TASKS)}', [*TOY, f'data.data_dir={tiny_vtab}'])
  for task, images in zip(TASKS, (47, 30)):
    config = sweeps[task].config
    assert config.data.source == f'vtab/{task}'
    assert len(data.open_dataset(config.data)) == 1000
    assert len(data.open_dataset(
        config.data, split=config.evals['test'].split)) == images


def test_missing_data_is_listed_before_training(tiny_vtab, tmp_path, capsys):
  assert run(tmp_path / 'work', tiny_vtab, tasks=()) == (2, None)
  error = capsys.readouterr().err
  assert 'task clevr_count_all, clevr_closest_object_distance: ' in error
  assert error.count(f'tfds build clevr --data_dir={tiny_vtab} ') == 1
  assert not (tmp_path / 'work').exists()


def test_a_mean_of_some_tasks_is_marked_and_tasks_can_be_added_later(
    tiny_vtab, tmp_path, capsys, training):
  def means(result):
    return {cell['column'] for cell in result['cells']
            if cell['panel'] == 'mean'}

  status, before = run(tmp_path, tiny_vtab)
  assert status == 0 and means(before) == {'all'}
  assert 'not comparable: 2 of 19 tasks' in capsys.readouterr().out
  _, result = run(tmp_path, tiny_vtab, (*TASKS, 'smallnorb_label_azimuth'))
  output = capsys.readouterr().out
  assert output.count('already finished') == 2 and '3 of 19' in output
  assert means(result) == {'all', 'structured'} and len(training.names) == 3
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
