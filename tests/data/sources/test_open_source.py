"""A dataset's name, or the layout of a path, determines how it is opened."""

import pytest

from tests import own_data
from vit_jax import data
from vit_jax.data.sources import open_source


def opened(name, data_dir=''):
  return open_source.open_splits(
      data.parse({'source': str(name), 'data_dir': str(data_dir)}))


def test_a_path_or_the_name_of_an_existing_folder_opens_a_folder(
    tmp_path, monkeypatch):
  own_data.write_table(tmp_path, 'path,label', [
      'pets/cat/a.png,1', 'pets/dog/a.png,0', 'pets/dog/a.png,0'],
                       name='pets.csv')
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('HOME', str(tmp_path))
  for name in (tmp_path / 'pets', './pets', 'pets', '~/pets'):
    assert opened(name).class_names == ('cat', 'dog')
  assert opened('pets.csv').class_names == ('0', '1')


def test_a_known_name_takes_precedence_over_a_folder(tmp_path, monkeypatch):
  own_data.write(tmp_path, 'cifar10/cat/a.png', 'cifar10/dog/a.png')
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match='tfds build cifar10'):
    opened('cifar10', tmp_path / 'tfds')
  assert opened('./cifar10').class_names == ('cat', 'dog')


def test_only_metadata_is_read_beside_class_folders(tmp_path):
  own_data.write(tmp_path, *(f'{"ab"[i % 2]}/{i}.jpg' for i in range(6)))
  latin = 'größe,ort\n1,Köln\n'.encode('latin-1')
  (tmp_path / 'notes.csv').write_bytes(latin)
  assert opened(tmp_path).class_names == ('a', 'b')
  (tmp_path / 'notes.csv').rename(tmp_path / 'metadata.csv')
  with pytest.raises(ValueError, match='metadata.csv is not UTF-8'):
    opened(tmp_path)


def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch):
  own_data.write(tmp_path, *(f'{c}/{i}.png' for c in 'ab' for i in range(9)))
  monkeypatch.chdir(tmp_path)
  assert opened('.').class_names == ('a', 'b')
  with pytest.raises(ValueError, match="No dataset ''"):
    opened('')
