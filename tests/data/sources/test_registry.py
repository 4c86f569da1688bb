"""A name opens the kind of data set that it looks like."""

import pytest

from vit_jax.data.sources import registry
from vit_jax.data.sources import rows
from vit_jax.data.sources import shapes
from vit_jax.data.splits import split_strings


def _open(name, data_dir=''):
  return registry.open_source(
      str(name), data_dir=str(data_dir), shapes_config=shapes.ShapesConfig(),
      size=(16, 16))


def _write_folder(root):
  for name in ('cat', 'dog'):
    (root / name).mkdir(parents=True)
    (root / name / 'a.png').write_bytes(b'')  # Opening reads no image.


def test_names_of_embedded_sets_open_them():
  assert len(_open('digits').splits['train']) == 1437
  assert _open('shapes').splits['train'][0]['image'].shape == (16, 16, 3)


def test_a_path_opens_a_folder_and_a_name_does_where_there_is_one(
    tmp_path, monkeypatch):
  _write_folder(tmp_path / 'pets')
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('HOME', str(tmp_path))
  for name in (tmp_path / 'pets', './pets', 'pets', '~/pets'):
    assert _open(name).class_names == ('cat', 'dog')


def test_a_known_name_is_the_known_set_whatever_lies_here(
    tmp_path, monkeypatch):
  _write_folder(tmp_path / 'cifar10')
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match='tfds build cifar10'):
    _open('cifar10', tmp_path / 'tfds')
  assert _open('./cifar10').class_names == ('cat', 'dog')


def test_sizes_to_plan_with_come_from_the_table():
  opened = registry.expect_source('cifar10')
  assert len(split_strings.select_split(opened, 'train[:98%]', name='cifar10')
             ) == 49_000
  with pytest.raises(ValueError, match='only planned with'):
    opened.splits['train'][0]
  with pytest.raises(ValueError, match="Did you mean 'cifar10'"):
    registry.expect_source('cifar1')


def test_a_file_of_data_is_a_path_by_its_look(tmp_path, monkeypatch):
  _write_folder(tmp_path / 'pets')
  (tmp_path / 'pets.csv').write_text(
      'path,label\npets/cat/a.png,1\npets/dog/a.png,0\npets/dog/a.png,0\n')
  monkeypatch.chdir(tmp_path)
  assert _open('pets.csv').class_names == ('0', '1')


def test_words_on_labels_are_refused_where_a_data_set_has_its_own():
  with pytest.raises(ValueError, match='data.target and data.table say how'):
    registry.check_understood('digits', rows.Understood('multi'))
  registry.check_understood('./digits', rows.Understood('multi'))
