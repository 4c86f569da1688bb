"""A dataset's name, or the layout of a path, determines how it is opened."""

from etils import epath
import pytest

from tests import own_data
from vit_jax import data
from vit_jax.data.sources import files
from vit_jax.data.sources import open_source
from vit_jax.data.splits import split_strings


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


def test_sizes_for_planning_come_from_the_table():
  planned = open_source.open_planned('cifar10')
  assert len(split_strings.select_split(planned, 'train[:98%]', name='cifar10')
             ) == 49_000
  with pytest.raises(ValueError, match='opened for planning only'):
    planned.splits['train'][0]
  assert open_source.open_planned('cifar1') is None


def test_two_layouts_in_a_folder_are_an_error(tmp_path):
  own_data.write(tmp_path, 'a.tar', 'b.parquet', 'labels.csv')
  with pytest.raises(ValueError, match=(
      r'holds Parquet files \(b.parquet\) and tar files \(a.tar\) and tables '
      r'\(labels.csv\). Name the files to use')):
    opened(tmp_path)


def test_an_unreadable_table_is_ignored_only_with_class_folders(tmp_path):
  own_data.write(tmp_path, *(f'{"ab"[i % 2]}/{i}.jpg' for i in range(6)))
  latin = 'größe,ort\n1,Köln\n'.encode('latin-1')
  (tmp_path / 'notes.csv').write_bytes(latin)
  assert opened(tmp_path).class_names == ('a', 'b')
  (tmp_path / 'notes.csv').rename(tmp_path / 'labels.csv')
  with pytest.raises(ValueError, match='labels.csv is not UTF-8'):
    opened(tmp_path)


@pytest.mark.parametrize(('name', 'exists', 'message'), [
    ('a.tar.gz', True, 'Expected a folder, or files of one type'),
    ('x.csv', False, 'x.csv does not exist.*a table'),
    ('*.tar', False, r'No file matches .*\*.tar')])
def test_other_and_missing_files_are_errors(tmp_path, name, exists, message):
  if exists:
    (tmp_path / name).write_bytes(b'')
  with pytest.raises(ValueError, match=message):
    opened(tmp_path / name)


@pytest.mark.parametrize(('names', 'splits'), [
    (['train-0.tar', 'val-1.tar'], ['train', 'val']),
    (['imagenet1k-train-0.tar', 'imagenet1k-validation-0.tar'],
     ['train', 'validation']),
    (['training/0.tar', 'test/0.tar'], ['train', 'test']),
    (['seg_train/0.tar', 'seg_test/0.tar'], ['train', 'test']),
    (['my_test/0.tar', 'my_test/1.tar'], None),
    (['train-0.tar', 'train-1.tar'], None), (['a.tar', 'b.tar'], None)])
def test_file_names_contain_the_split(names, splits):
  assert files.splits_of(list(map(epath.Path, names)), where='x') == splits
  with pytest.raises(ValueError, match='train.*but b.tar does not'):
    files.splits_of(
        list(map(epath.Path, ('train-0.tar', 'b.tar'))), where='x')
