"""Data of their own for validation (`data.val_source`, `evals.X.source`)."""

import pytest

from tests import leaves
from tests import own_data
from tests import toy
from vit_jax import data
from vit_jax import registry

TRAIN = [f'train/{c}/{i}.png' for c in 'abc' for i in range(20)]
VAL = [f'val/{c}/{i}.png' for c in 'bc' for i in range(10)]  # Lacks a.


@pytest.fixture
def folders(tmp_path):
  own_data.write(tmp_path, *TRAIN, *VAL)
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


@pytest.mark.parametrize(('change', 'message'), [
    ({'val_source': 'digits'}, 'The validation data has other classes than'),
    *[({'val_source': 'shapes'}, 'of the kind multi, but .* single')]
    * leaves.has(registry.SOURCES['shapes']),
    ({'holdout': 0.2}, 'val_source and holdout exclude each other')])
def test_validation_data_must_fit(change, message, folders):
  with pytest.raises(ValueError, match=message):
    _open('', **{**folders, **change})


def test_a_source_of_evaluators_is_used_whole_unless_they_name_a_split(folders):
  config = data.parse({'source': 'digits'})
  opened = [data.open_dataset(config, split=split, source=folders['val_source'])
            for split in ('', 'test')]
  assert [(one.num_examples, one.split) for one in opened] == [
      (20, 'all'), (2, 'test')]


def test_a_run_names_what_it_evaluates_on():
  experiment = toy.build(
      data={'val_source': 'digits'}, evals={
          'test': {}, 'knn': {'name': 'knn'}})
  assert [*map(experiment.describe_evaluator, experiment.config.evals)] == [
      'test evaluates on 360 images of digits, split val',
      'knn evaluates on 360 images of digits, split val, with 1,437 of train']
