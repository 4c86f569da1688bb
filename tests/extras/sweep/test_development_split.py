"""Development data and selection metric of a sweep."""

import json
import pathlib

import pytest

from tests import pictures
from tests import toy
from vit_jax import data
from vit_jax.experiment import config as config_lib
from vit_jax.extras.sweep import config as sweep_config
from vit_jax.extras.sweep import development_split
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import sweep as sweep_lib

ROOT = pathlib.Path(__file__).parents[3]


MASKED = ('objective={"name": "masked_patch"}', 'evals.test.name=objective')
MULTI_LABEL = (
    'data.source=shapes', 'objective.loss=sigmoid', 'data.shapes='
    '{"label": "multi", "num_examples": 100, "num_test_examples": 40}')


@pytest.mark.parametrize(('overrides', 'metric', 'mode', 'best'), [
    (MASKED, 'dev/loss', 'min', 1e-06),  # There are no labels.
    (MULTI_LABEL, 'dev/precision_at_1', 'max', 0.01)])
def test_the_default_metric_is_one_that_is_measured(
    file, tmp_path, training, overrides, metric, mode, best):
  sweep = grid_lib.plan(file, overrides)['']
  assert (sweep.section.metric, sweep.mode) == (metric, mode)
  for point in sweep.points:
    assert point.development.evals['dev'].name == (
        point.config.evals['test'].name)
    assert point.development.evals['dev'].split == 'train[80%:]'
  result = sweep_lib.run(sweep, tmp_path)
  assert result['best']['name'] == f'learning_rate={best}'
  assert len(training.names) == 4


@pytest.mark.parametrize(('changes', 'metric'), [
    ({'objective': {'name': 'segmentation'}}, 'dev/mean_iou'),
    ({'evals': {'test': {'name': 'regression'}}}, 'dev/r2'),
    ({'evals': {'knn': {'name': 'knn'}},
      'checkpoint': {'stop_below': [['knn/feature_rank', 0.5]]}},
     'dev/accuracy')])
def test_the_metric_of_a_grid_run_fits_its_head(changes, metric, monkeypatch):
  config = config_lib.resolve(toy.config(**changes))
  found = development_split.development_config(
      config, sweep_config.SweepConfig(grid={'batch_size': (8,)}))
  targets = ('a', 'b') if 'r2' in metric else ()
  monkeypatch.setattr(data, 'open_dataset', lambda *_, **__: data.Metadata(
      num_classes=10, targets=targets))
  assert development_split.default_metric(found) == metric
  assert not found.checkpoint.stop_below


def test_the_default_metric_of_missing_data_comes_from_the_table():
  for dataset, metric in (('jft', 'precision_at_1'), ('cifar10', 'accuracy')):
    sweep = grid_lib.plan(
        f'{ROOT}/configs/finetune.py:model=B/16,dataset={dataset}',
        ['data.data_dir=/no/where'])['']
    assert sweep.section.metric == f'dev/{metric}'


@pytest.mark.parametrize('name', [
    'minival', pytest.param('val', marks=pytest.mark.slow)])
def test_evaluators_of_the_selection_are_not_reported(
    file, tmp_path, training, name):
  selection = {name: {'split': 'train[80%:]'}}
  evaluators = json.dumps({'test': {'split': 'test'}, **selection})
  sweep = grid_lib.plan(
      file, ['data.split=train[:80%]', f'evals={evaluators}'],
      development={'data': {'split': 'train[:80%]'}, 'evals': selection})['']
  assert sweep.section.metric == f'{name}/accuracy'
  result = sweep_lib.run(sweep, tmp_path)
  assert {name.split('/')[0] for name in result['final']['statistics']} == {
      'test'}


def test_an_evaluator_of_the_development_split_selects(
    file, tmp_path, training):
  pictures.save_all(tmp_path, [
      f'{("train", "val")[i > 7]}/{"ab"[i % 2]}/{i}.png' for i in range(12)])
  sweep = grid_lib.plan(
      file, [f'data.source={tmp_path}', 'evals={"a": {"split": "train[:2]"}}'],
      development={'evals': {'test': {}}})['']
  assert sweep.section.metric == 'test/accuracy'
  result = sweep_lib.run(sweep, tmp_path / 'sweep')
  assert result['best']['name'] == 'learning_rate=0.01'


def test_equal_splits_of_other_data_are_reported():
  final, development = (config_lib.resolve(toy.config(
      data={'source': source}, evals={'test': {'split': 'test'}}))
                        for source in ('./all', './part'))
  assert development_split.reported_evaluators(final, development) == ['test']
  assert not development_split.reported_evaluators(final, final)
