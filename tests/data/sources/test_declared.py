"""What is declared holds, and what contradicts it is an error."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import own_data


def _folders(*folders, each=3):
  return lambda root: own_data.write(root, *(
      f'{folder}/{i}.png'.lstrip('/') for folder in folders
      for i in range(each)))


@pytest.mark.parametrize('names', [
    [f'{i:04}' for i in range(150)], ['0.5', '1.0', '1.5'], ['a;b', 'c;d']])
def test_class_folders_may_have_any_name(tmp_path, names):
  _folders(*names)(tmp_path)
  assert own_data.open_splits(tmp_path).num_classes == len(names)


@pytest.mark.parametrize('folders', [['val/a'], ['val/b', 'val/a']])
def test_evaluated_data_may_lack_classes(tmp_path, folders):
  _folders('train/a', 'train/b', 'train/c')(tmp_path)
  _folders(*folders, each=1)(tmp_path)
  opened = own_data.open_splits(
      tmp_path / 'train', val_source=str(tmp_path / 'val'))
  assert len(opened.splits['val']) == len(folders)


def test_trained_data_have_two_classes(tmp_path):
  _folders('x/a', 'y/a', 'y/b')(tmp_path)
  with pytest.raises(ValueError, match='has a single class; a classifier'):
    own_data.open_splits(tmp_path / 'x', val_source=str(tmp_path / 'y'))


def test_images_outside_class_folders_are_counted(tmp_path):
  _folders('a', 'b', '')(tmp_path)
  assert 'not read: 3 images in no class folder' in own_data.open_splits(
      tmp_path).description


@pytest.mark.parametrize('column', [
    pa.array(['a', None, 'b', 'a']).dictionary_encode(),
    pa.array([True, False, True, False])])
def test_columns_of_parquet_of_any_type_are_read_or_named(tmp_path, column):
  own_data.write(tmp_path, *(f'{i}.png' for i in range(4)))
  pq.write_table(pa.table({
      'path': [f'{i}.png' for i in range(4)], 'label': column,
      'other': [True, False, False, True]}), tmp_path / 'x.parquet')
  if column.null_count:
    with pytest.raises(ValueError, match='row 2: None'):
      own_data.open_splits(tmp_path / 'x.parquet')
  else:
    flags = {'table.label': 'label,other', 'target': 'multi'}
    assert own_data.open_splits(
        tmp_path / 'x.parquet', **flags).class_names == ('label', 'other')
