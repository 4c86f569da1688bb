"""The layout of a path is inferred from file names; ambiguity is an error."""

from etils import epath
import pytest

from vit_jax.data.sources import columns
from vit_jax.data.sources import files
from vit_jax.data.sources import paths


def open_path(path):
  return paths.open_path(str(path), columns.AUTO)


def test_two_layouts_in_a_folder_are_an_error(tmp_path):
  for name in ('a.tar', 'b.parquet', 'labels.csv'):
    (tmp_path / name).write_bytes(b'')
  with pytest.raises(ValueError, match=(
      r'holds Parquet files \(b.parquet\) and tar files \(a.tar\) and tables '
      r'\(labels.csv\). Give the files to use')):
    open_path(tmp_path)


def test_an_unreadable_table_is_ignored_beside_class_folders_only(tmp_path):
  for i in range(6):
    path = tmp_path / 'ab'[i % 2] / f'{i}.jpg'
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b'')
  latin = 'größe,ort\n1,Köln\n'.encode('latin-1')
  (tmp_path / 'notes.csv').write_bytes(latin)
  assert open_path(tmp_path).class_names == ('a', 'b')
  (tmp_path / 'notes.csv').rename(tmp_path / 'labels.csv')
  with pytest.raises(ValueError, match='labels.csv is not UTF-8'):
    open_path(tmp_path)


@pytest.mark.parametrize('name', ['a.zip', 'a.tar.gz'])
def test_other_file_types_are_an_error(tmp_path, name):
  (tmp_path / name).write_bytes(b'')
  with pytest.raises(ValueError, match='Expected a folder, or files of one ty'):
    open_path(tmp_path / name)


@pytest.mark.parametrize(('name', 'message'), [
    ('x', 'x .data.source. does not exist.*a table'),
    ('*.tar', r'No file matches .*\*.tar')])
def test_a_missing_path_is_an_error(tmp_path, name, message):
  with pytest.raises(ValueError, match=message):
    open_path(tmp_path / name)


def test_braces_are_a_range_or_a_choice():
  assert files.expand_braces('a-{08..11}.{x,y}') == [
      f'a-{i}.{end}' for i in ('08', '09', '10', '11') for end in 'xy']


@pytest.mark.parametrize(('names', 'splits'), [
    (['train-0.tar', 'val-1.tar'], ['train', 'val']),
    (['imagenet1k-train-0.tar', 'imagenet1k-validation-0.tar'],
     ['train', 'validation']),
    (['training/0.tar', 'test/0.tar'], ['train', 'test']),
    (['train-0.tar', 'train-1.tar'], None), (['a.tar', 'b.tar'], None)])
def test_file_names_contain_the_split(names, splits):
  assert files.splits_of(list(map(epath.Path, names)), where='x') == splits


def test_a_file_name_without_split_beside_others_is_an_error():
  with pytest.raises(ValueError, match='train.*but b.tar does not'):
    files.splits_of(
        list(map(epath.Path, ('train-0.tar', 'b.tar'))), where='x')
