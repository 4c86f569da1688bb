"""Which layout lies at a path is told from names, and two at once are said."""

from etils import epath
import pytest

from vit_jax.data.sources import layouts
from vit_jax.data.sources import rows
from vit_jax.data.sources import shards


def open_path(path):
  return layouts.open_path(str(path), rows.AUTO)


def test_two_layouts_in_a_folder_are_an_error(tmp_path):
  for name in ('a.tar', 'b.parquet', 'labels.csv'):
    (tmp_path / name).write_bytes(b'')
  with pytest.raises(ValueError, match=(
      r'holds Parquet files \(b.parquet\) and tar files \(a.tar\) and tables '
      r'\(labels.csv\). Give the files that are meant')):
    open_path(tmp_path)


def test_a_table_that_nobody_asked_for_breaks_no_folder_of_classes(tmp_path):
  for i in range(6):
    path = tmp_path / 'ab'[i % 2] / f'{i}.jpg'
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b'')
  latin = 'größe,ort\n1,Köln\n'.encode('latin-1')
  (tmp_path / 'notes.csv').write_bytes(latin)
  opened = open_path(tmp_path)
  assert opened.class_names == ('a', 'b')
  assert 'notes.csv is passed over' in opened.description
  assert 'not UTF-8' in opened.description
  for name in ('a', 'b'):  # What is there must not be missed, though.
    (tmp_path / name).rename(tmp_path / {'a': 'train', 'b': 'test'}[name])
  with pytest.raises(ValueError, match='no class folders.*notes.csv is passed'):
    open_path(tmp_path)
  (tmp_path / 'notes.csv').rename(tmp_path / 'labels.csv')
  with pytest.raises(ValueError, match='labels.csv is not UTF-8'):
    open_path(tmp_path)


@pytest.mark.parametrize('name', ['a.zip', 'a.tar.gz'])
def test_files_of_other_kinds_are_refused(tmp_path, name):
  (tmp_path / name).write_bytes(b'')
  with pytest.raises(ValueError, match='Expected a folder, or files of one ki'):
    open_path(tmp_path / name)


def test_nothing_there_says_what_could_be(tmp_path):
  with pytest.raises(ValueError, match='no .*x .data.source.*a table'):
    open_path(tmp_path / 'x')
  with pytest.raises(ValueError, match=r'No file matches .*\*.tar'):
    open_path(tmp_path / '*.tar')


def test_braces_are_a_range_or_a_choice():
  assert shards._expand_braces('a-{08..11}.{x,y}') == [
      f'a-{i}.{end}' for i in ('08', '09', '10', '11') for end in 'xy']


@pytest.mark.parametrize(('names', 'splits'), [
    (['train-0.tar', 'val-1.tar'], ['train', 'val']),
    (['imagenet1k-train-0.tar', 'imagenet1k-validation-0.tar'],
     ['train', 'validation']),
    (['training/0.tar', 'test/0.tar'], ['train', 'test']),
    (['train-0.tar', 'train-1.tar'], None), (['a.tar', 'b.tar'], None)])
def test_the_split_of_a_file_is_in_its_name(tmp_path, names, splits):
  paths = [epath.Path(tmp_path / name) for name in names]
  assert shards.splits_of(paths, where='x') == splits


def test_a_file_of_no_split_beside_others_is_an_error(tmp_path):
  with pytest.raises(ValueError, match='train.*but b.tar is of none'):
    shards.splits_of(
        [epath.Path(tmp_path / name) for name in ('train-0.tar', 'b.tar')],
        where='x')
