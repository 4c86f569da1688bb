"""A data set's name determines how it is opened."""

import pytest

from vit_jax.data.sources import columns
from vit_jax.data.sources import registry
from vit_jax.data.sources import shapes
from vit_jax.data.splits import split_strings


def open_source(name, data_dir=''):
  return registry.open_source(
      str(name), data_dir=str(data_dir), shapes_config=shapes.ShapesConfig(),
      size=(16, 16))


def write_folder(root):
  for name in ('cat', 'dog'):
    (root / name).mkdir(parents=True)
    (root / name / 'a.png').write_bytes(b'')  # Opening reads no image.


def test_a_path_or_the_name_of_an_existing_folder_opens_a_folder(
    tmp_path, monkeypatch):
  write_folder(tmp_path / 'pets')
  (tmp_path / 'pets.csv').write_text(
      'path,label\npets/cat/a.png,1\npets/dog/a.png,0\npets/dog/a.png,0\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('HOME', str(tmp_path))
  for name in (tmp_path / 'pets', './pets', 'pets', '~/pets'):
    assert open_source(name).class_names == ('cat', 'dog')
  assert open_source('pets.csv').class_names == ('0', '1')


def test_a_known_name_wins_over_a_folder(tmp_path, monkeypatch):
  write_folder(tmp_path / 'cifar10')
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match='tfds build cifar10'):
    open_source('cifar10', tmp_path / 'tfds')
  assert open_source('./cifar10').class_names == ('cat', 'dog')


def test_sizes_for_planning_come_from_the_table():
  opened = registry.open_planned('cifar10')
  assert len(split_strings.select_split(opened, 'train[:98%]', name='cifar10')
             ) == 49_000
  with pytest.raises(ValueError, match='opened for planning only'):
    opened.splits['train'][0]
  with pytest.raises(ValueError, match="Did you mean 'cifar10'"):
    registry.open_planned('cifar1')


def test_label_config_is_refused_for_data_sets_that_declare_labels():
  with pytest.raises(ValueError, match='data.target and data.table describe'):
    registry.check_label_config('digits', columns.LabelConfig('multi'))
  registry.check_label_config('./digits', columns.LabelConfig('multi'))
