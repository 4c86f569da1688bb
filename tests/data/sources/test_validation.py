"""Data of their own for validation (`data.val_source`, `evals.X.source`)."""

import pytest

from tests import own_data
from vit_jax import data


@pytest.fixture
def folders(tmp_path):
  own_data.write_folders(tmp_path, 'train/a', 'train/b', 'train/c', count=20)
  own_data.write_folders(tmp_path, 'val/b', 'val/c', count=10)
  return {'source': f'{tmp_path}/train', 'val_source': f'{tmp_path}/val'}


def _open(split, **section):
  return data.open_dataset(data.parse(section), split=split)


def test_training_and_validation_paths_are_both_used_fully(folders):
  train, val = (_open(split, **folders) for split in (None, ''))
  assert (train.num_examples, val.num_examples) == (60, 20)
  assert (val.name, val.split) == (folders['val_source'], 'val')
  # Classes are matched by name, and images of equal paths are different ones.
  assert {(val[i]['image'].decode().split('/')[1],
           val.class_names[val.source.label(i)]) for i in range(20)} == {
               ('b', 'b'), ('c', 'c')}
  assert not train.overlaps(val)
  assert 'train 60; val: 20 images' in train.description


def test_only_trained_data_need_two_classes(tmp_path):
  own_data.write_folders(tmp_path, 'one/a', 'two/a', 'two/b')
  one, two = (str(tmp_path / name) for name in ('one', 'two'))
  assert len(own_data.open_splits(two, val_source=one).splits['val']) == 3


def test_a_source_of_evaluators_is_used_whole_unless_they_name_a_split(folders):
  config = data.parse({'source': 'digits'})
  opened = [data.open_dataset(config, split=split, source=folders['val_source'])
            for split in ('', 'test')]
  assert [(one.num_examples, one.split) for one in opened] == [
      (20, 'all'), (2, 'test')]
