"""VTAB-1k has the splits and labels of the benchmark, and its sweep."""

import json
import pathlib

import numpy as np
from PIL import Image
import pytest

from tests import own_data
from tests import pictures
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax.data.sources import open_source
from vit_jax.data.splits import split_strings
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import tasks as tasks_lib
from vit_jax.extras.sweep import vtab


def label(task, **example):
  return vtab.TASKS[task].label(example)


def test_labels_are_binned_as_in_the_benchmark():
  assert [label('clevr_count_all', objects={'size': [0] * count})
          for count in range(3, 11)] == list(range(8))
  assert [label('dsprites_label_x_position_16', label_x_position=i)
          for i in range(32)] == [i // 2 for i in range(32)]
  assert [label('dsprites_label_orientation_16', label_orientation=i)
          for i in range(40)] == [2 * i // 5 for i in range(40)]


@pytest.mark.parametrize(('distance', 'expected'), [
    (0.1, 0), (8.0, 0), (8.01, 1), (8.5, 1), (8.6, 2), (9.2, 3), (9.9, 4),
    (10.0, 4), (10.1, 5), (60.0, 5)])
def test_clevr_distance_is_that_of_the_closest_object(distance, expected):
  coordinates = np.array(
      [[300, 200, 99.0], [1, 1, distance], [0, 0, 98.0]], np.float64)
  assert label('clevr_closest_object_distance',
               objects={'pixel_coords': coordinates}) == expected


@pytest.mark.parametrize(('kinds', 'metres', 'expected'), [
    ((0,), (7.0,), 0), ((0,), (8.0,), 0), ((1,), (8.1,), 1), ((2,), (20.0,), 1),
    ((2,), (20.5,), 2), ((0, 1), (300.0, 9.0), 1), ((0,), (-3.0,), 0),
    ((3, 4, 7), (1.0, 2.0, 3.0), 3),  # Others than cars, vans and trucks.
    ((3, 0), (1.0, 25.0), 2), ((), (), 3)])
def test_kitti_distance_is_that_of_the_closest_vehicle(kinds, metres, expected):
  location = np.array([[5.0, 6.0, z] for z in metres], np.float32)
  assert label('kitti_closest_vehicle_distance', objects={
      'type': np.array(kinds, np.int64), 'location': location}) == expected


def test_dsprites_pixels_of_one_become_white():
  file = pictures.encode(Image.fromarray(np.eye(4, dtype=np.uint8)))
  image = vtab.TASKS['dsprites_label_x_position_16'].image(file)
  assert image.dtype == np.uint8
  np.testing.assert_array_equal(
      image, 255 * np.eye(4, dtype=np.uint8)[..., None])


def open_task(task, root):
  return open_source.open_splits(
      data.parse({'source': f'vtab/{task}', 'data_dir': str(root)}))


def test_tasks_have_the_splits_and_labels_of_the_benchmark(tiny_vtab):
  opened = open_task('kitti_closest_vehicle_distance', tiny_vtab)
  assert own_data.sizes(opened) == {'train800': 800, 'val200': 200, 'test': 30}
  assert opened.num_classes == 4 and opened.eval_split == 'test'
  test = opened.splits['test']
  assert [test.label(i) for i in range(8)] == [0, 1, 2, 3] * 2
  assert test[3]['label'] == 3
  assert test[0]['image'].startswith(b'\x89PNG')
  both = split_strings.select_split(opened, 'train800+val200', name='kitti')
  assert len(both) == 1000
  assert both.key(999) == 'kitti:3.*.* validation 199'


def test_smallnorb_uses_the_second_half_of_its_test_split(tiny_vtab):
  for name, classes in (('azimuth', 18), ('elevation', 9)):
    opened = open_task(f'smallnorb_label_{name}', tiny_vtab)
    test = opened.splits['test']
    assert len(test) == 200 and opened.num_classes == classes
    assert test.label(0) == 200 % classes
    assert test.key(0).endswith('test 200')
    assert opened.splits['val200'].key(199).endswith('test 199')


@pytest.mark.parametrize(('task', 'images'), [
    ('eurosat', 27_000), ('resisc45', 31_500)])
def test_a_dataset_of_one_split_is_tested_on_its_last_fifth(
    monkeypatch, task, images):
  monkeypatch.setattr(vtab.tfds_folders, 'find', lambda *_: None)
  monkeypatch.setattr(vtab.tfds_folders, 'open_records', lambda _: (
      {'train': range(images)}, {}))
  test = open_task(task, '').splits['test']
  assert len(test) == vtab.planned(task).num_examples['test']
  assert test.key(0).endswith(f'train {images * 4 // 5}')


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


@pytest.mark.slow
def test_missing_data_is_listed_before_training(tiny_vtab, tmp_path, capsys):
  assert run(tmp_path / 'work', tiny_vtab, tasks=()) == (2, None)
  error = capsys.readouterr().err
  assert 'task clevr_count_all, clevr_closest_object_distance: ' in error
  assert error.count(f'tfds build clevr --data_dir={tiny_vtab} ') == 1
  assert not (tmp_path / 'work').exists()


@pytest.mark.slow
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

  assert sources('') == [f'vtab/{task}' for task in vtab.TASKS]
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
