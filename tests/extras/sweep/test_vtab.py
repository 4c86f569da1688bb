"""VTAB-1k tasks have the splits and labels of the benchmark."""

import numpy as np
from PIL import Image
import pytest

from tests import own_data
from tests import pictures
from vit_jax import data
from vit_jax.data.sources import open_source
from vit_jax.data.splits import split_strings
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
def test_kitti_distance_is_that_of_the_closest_vehicle(
    kinds, metres, expected):
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
  assert own_data.sizes(opened) == {
      'train800': 800, 'val200': 200, 'test': 30}
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
