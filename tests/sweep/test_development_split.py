"""Settings are chosen by what is learned, on examples that nobody has seen."""

import json
import pathlib

import pytest

from vit_jax import run as run_lib
from vit_jax import sweep as sweep_lib
from vit_jax.experiment import config as config_lib
from vit_jax.sweep import development_split

ROOT = pathlib.Path(__file__).parents[2]

CONFIG = """
from ml_collections import ConfigDict

def get_config(kind: str = ''):
  config = ConfigDict({
      'total': {'steps': 2}, 'batch_size': 32,
      'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
                'patch': 4, 'pooling': 'average'},
      'data': {'source': 'digits', 'resolution': 8, 'split': 'train'},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                    'schedule': {'name': 'constant'}},
      'evals': {'test': {'split': 'test'}},
      'sweep': {'grid': {'optimizer': {'learning_rate': [0.01, 0.1]}},
                'held_out': 20, 'seeds': 2},
  })
  if kind == 'masked':
    config.objective = {'name': 'masked_patch'}
    config.evals.test.name = 'objective'
  if kind == 'multi':
    config.data.source = 'shapes'
    config.data.shapes = {'label': 'multi', 'num_examples': 100,
                          'num_test_examples': 40}
    config.objective = {'loss': 'sigmoid'}
  if kind == 'minival':
    config.data.split = 'train[:80%]'
    config.evals.minival = {'split': 'train[80%:]'}
    config.sweep.development = {
        'data': {'split': 'train[:80%]'},
        'evals': {'minival': {'split': 'train[80%:]'}}}
  return config
"""


@pytest.fixture(scope='module')
def file(tmp_path_factory):
  path = tmp_path_factory.mktemp('config') / 'toy.py'
  path.write_text(CONFIG)
  return str(path)


@pytest.fixture
def trained(monkeypatch):
  """Nothing is trained: the names of what would be, each with a summary."""
  names = []

  def train(experiment, workdir, **_):
    workdir = pathlib.Path(workdir)
    names.append(workdir.name)
    rate = experiment.config.optimizer.learning_rate
    summary = {'metrics': {
        f'{name}/{metric}': rate for name in experiment.config.evals
        for metric in ('loss', 'accuracy', 'precision_at_1')}}
    workdir.mkdir(parents=True)
    (workdir / 'summary.json').write_text(json.dumps(summary))
    return summary

  monkeypatch.setattr(run_lib, 'train', train)
  return names


def test_without_labels_the_objective_itself_is_what_is_chosen_by(
    file, tmp_path, trained):
  sweep = sweep_lib.plan(f'{file}:kind=masked')
  assert sweep.section.metric == 'dev/loss' and sweep.mode == 'min'
  for point in sweep.points:
    assert point.development.evals['dev'].name == 'objective'
    assert point.development.evals['dev'].split == 'train[80%:]'
  result = sweep_lib.run(sweep, tmp_path)
  assert result['best']['name'] == 'learning_rate=0.01'  # The lower loss.
  assert len(trained) == 4


@pytest.mark.parametrize('evaluator', ['classification', 'calibration'])
def test_a_head_that_nothing_trains_chooses_nothing(file, evaluator):
  with pytest.raises(ValueError, match='masked_patch trains no head'):
    sweep_lib.plan(f'{file}:kind=masked', metric='dev/loss', development={
        'data': {'split': 'train[:80%]'},
        'evals': {'dev': {'name': evaluator, 'split': 'train[80%:]'}}})


@pytest.mark.parametrize(('kind', 'metric', 'instead'), [
    ('masked', 'dev/accuracy', 'dev/loss'),
    ('masked', 'dev/precision_at_1', 'dev/loss'),
    ('multi', 'dev/accuracy', 'dev/precision_at_1'),
    ('multi', 'dev/accuracy_top_5', 'dev/precision_at_1'),
    ('', 'dev/precision_at_1', 'dev/accuracy'),
])
def test_a_metric_that_will_not_be_measured_is_known_before_training(
    file, tmp_path, trained, kind, metric, instead):
  argument = f':kind={kind}' if kind else ''
  with pytest.raises(ValueError) as error:
    sweep_lib.run(sweep_lib.plan(file + argument, metric=metric), tmp_path)
  assert f'{metric!r}, which is not measured' in str(error.value)
  assert instead in str(error.value)
  assert not trained and not list(tmp_path.iterdir())
  # The advice can be followed.
  sweep_lib.run(sweep_lib.plan(file + argument, metric=instead), tmp_path)
  assert len(trained) == 4


def test_of_several_labels_the_precision_is_what_is_chosen_by(
    file, tmp_path, trained):
  sweep = sweep_lib.plan(f'{file}:kind=multi')
  assert sweep.section.metric == 'dev/precision_at_1' and sweep.mode == 'max'
  assert sweep_lib.run(sweep, tmp_path)['best']['name'] == 'learning_rate=0.1'


def test_data_that_is_not_here_is_chosen_by_what_the_table_says():
  for dataset, metric in (('jft', 'precision_at_1'), ('cifar10', 'accuracy')):
    sweep = sweep_lib.plan(
        f'{ROOT}/configs/finetune.py:model=B/16,dataset={dataset}',
        ['data.data_dir=/no/where'])
    assert sweep.section.metric == f'dev/{metric}'


def test_of_several_evaluators_one_must_be_named(file):
  several = {'evals': {'a': {'split': 'train[80%:90%]'},
                       'b': {'split': 'train[90%:]'}},
             'data': {'split': 'train[:80%]'}}
  with pytest.raises(ValueError, match='--metric a/METRIC'):
    sweep_lib.plan(file, development=several)
  assert sweep_lib.plan(
      file, development=several, metric='b/loss').mode == 'min'


@pytest.mark.parametrize(('train', 'dev', 'words'), [
    ('train', 'test', "'test' reads 'test'"),
    ('train', 'test[:90%]', "'test' reads 'test'"),
    ('train[:80%]', 'train[80%:]+test[7:8]', "'test' reads 'test'"),
    ('train', 'train[90%:]', 'of which examples are trained on'),
    ('train[:80%]', 'train[79%:]', 'of which examples are trained on'),
    ('train[:50%]+train[60%:]', 'train[50%:61%]', 'are trained on'),
])
def test_examples_that_were_seen_choose_nothing(
    file, tmp_path, trained, train, dev, words):
  sweep = sweep_lib.plan(file, development={
      'data': {'split': train}, 'evals': {'dev': {'split': dev}}})
  with pytest.raises(ValueError) as error:
    sweep_lib.run(sweep, tmp_path)
  assert words in str(error.value)
  assert not trained and not list(tmp_path.iterdir())


def test_what_was_chosen_by_is_no_part_of_the_report(file, tmp_path, trained):
  sweep = sweep_lib.plan(f'{file}:kind=minival')
  assert sweep.section.metric == 'minival/accuracy'
  result = sweep_lib.run(sweep, tmp_path)
  assert {name.split('/')[0] for name in result['final']['statistics']} == {
      'test'}


def test_a_sweep_that_could_only_report_what_it_chose_by_is_refused(
    file, tmp_path, trained):
  sweep = sweep_lib.plan(file, metric='test/accuracy', development={
      'data': {'split': 'train'}, 'evals': {'test': {'split': 'test'}}})
  with pytest.raises(ValueError, match='no evaluator for the final runs'):
    sweep_lib.run(sweep, tmp_path)
  assert not trained


def test_a_task_of_vtab_keeps_to_its_own_splits(tiny_vtab, tmp_path, trained):
  sweep = sweep_lib.plan(
      f'{ROOT}/configs/vtab.py:task=dtd', [
          f'data.data_dir={tiny_vtab}', 'data.resolution=8', 'batch_size=40',
          'model.width=8', 'model.depth=1', 'model.num_heads=2',
          'model.mlp_dim=16', 'model.patch=4'],
      grid={'optimizer.learning_rate': ('0.1', '0.2')})
  sweep_lib.run(sweep, tmp_path)
  assert len(trained) == 5


def test_imagenet_from_scratch_is_chosen_on_minival_alone():
  sweep = sweep_lib.plan(
      f'{ROOT}/configs/vit_s16_imagenet.py',
      grid={'optimizer.learning_rate': ('0.001', '0.003')})
  assert sweep.section.metric == 'minival/accuracy'
  for point in sweep.points:
    assert {n: e.split for n, e in point.development.evals.items()} == {
        'minival': 'train[99%:]'}
    assert point.development.data.split == 'train[:99%]'
    assert development_split.reported_evaluators(
        point.config, point.development) == ['val']


@pytest.mark.parametrize('objective', ['supervised', 'masked_patch'])
def test_the_objective_says_whether_the_head_counts(objective):
  config = config_lib.resolve({
      'total': {'steps': 1}, 'batch_size': 8, 'model': {'variant': 'Ti/16'},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                    'schedule': {'name': 'constant'}},
      'objective': {'name': objective},
      'evals': {'dev': {'name': 'knn'}}})
  assert development_split.mode(config, 'dev/accuracy') == 'max'
