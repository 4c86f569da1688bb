"""Command `evaluate`, on runs and on weights of other codebases."""

import dataclasses
import json

import jax
import numpy as np
from PIL import Image
import pytest

from tests import pictures
from tests import toy
import vit_jax
from vit_jax import __main__ as main
from vit_jax.data.images import ops as ops_lib
from vit_jax.experiment.config_file import read as read_config
from vit_jax.inference import load as load_lib
from vit_jax.run import evaluate_weights


@pytest.fixture(scope='module')
def config_file(tmp_path_factory):
  return toy.write(
      tmp_path_factory.mktemp('config') / 'toy.py', batch_size=40,
      total={'epochs': 1},  # No step of the few images of another source.
      model={'pooling': 'average'},
      evals={'part': {'split': 'test[:10%]'}, 'rest': {'split': 'test[10%:]'},
             'absent': {'source': '/no/such/folder'}})


def save(built, workdir, **progress):
  """Saves a run as if it were finished, but with random parameters."""
  rng = np.random.default_rng(0)
  toy.save(built, workdir, step=built.total_steps, progress=progress,
           params=jax.tree.map(
               lambda x: x + rng.normal(0, 0.3, x.shape).astype('float32'),
               built.random_params()))


@pytest.fixture(scope='module')
def trained(config_file, tmp_path_factory):
  raw, workdir = read_config(config_file), tmp_path_factory.mktemp('run')
  del raw['evals']['absent']
  save(toy.build(**raw), workdir)
  return workdir


@pytest.fixture
def evaluate(tmp_path):
  """Returns a function from arguments to the exit status and the figures."""
  def run(*arguments):
    path = tmp_path / 'figures.json'
    status = main.main(['evaluate', *map(str, arguments), f'--json={path}'])
    return status, json.loads(path.read_text()) if status == 0 else None

  return run


def test_evaluators_are_selected_by_name_or_kind(evaluate, trained, capsys):
  status, figures = evaluate(
      f'--workdir={trained}',
      '--evaluators=part,fewshot,knn',
      # A microbatch is smaller than the number of devices.
      '--config.batch_size=12', '--config.accumulation=12',
      '--config.evals.fewshot.shots=[1,3]', '--config.evals.fewshot.seeds=2',
      '--config.evals.fewshot.train_split=train[:80]',
      '--config.evals.fewshot.split=test[:24]',
      '--config.evals.knn.train_split=train[:40]',
      '--config.evals.knn.split=test[:30]')
  assert status == 0
  metrics = figures['metrics']
  assert metrics['part/examples'] == 36
  assert {'fewshot/1_shot', 'fewshot/3_shot_std'} <= set(metrics)
  assert 'fewshot/5_shot' not in metrics
  assert metrics['knn/examples'] == 30
  assert 'fewshot: digits test[:24], 24 images' in capsys.readouterr().out


def table(folder, classes):
  """Writes 10 images for training and 2 for tests, and returns their table."""
  for i in range(12):
    pictures.save(folder / f'{i}.png', pictures.picture(i, side=8))
  (folder / 'all.csv').write_text('\n'.join(['path,label,split', *(
      f'{i}.png,{classes[i % len(classes)]},{"train" if i < 10 else "test"}'
      for i in range(12))]))
  return folder / 'all.csv'


def test_another_source_is_evaluated(evaluate, trained, tmp_path):
  source = table(tmp_path, '0123456789')
  status, figures = evaluate(
      f'--workdir={trained}', f'--source={source}',
      '--config.data.source=/no/such/folder')  # Training data are not needed.
  assert (status, figures['metrics'].pop('part/examples')) == (0, 2)
  assert not [name for name in figures['metrics'] if 'rest' in name]


@pytest.mark.parametrize('overrides', [[], ['data.table.folder=/images']])
def test_paths_in_another_table_start_from_its_folder(trained, overrides):
  weights = evaluate_weights.open_weights(trained)
  section = {**weights.run['data'], 'table': {'folder': '/trained/on'}}
  config = evaluate_weights.config_for(
      dataclasses.replace(weights, run={**weights.run, 'data': section}),
      source='/new/table.csv', overrides=overrides)
  assert config.data.table.folder == '/images' * bool(overrides)


def test_only_selected_evaluators_need_their_data(
    evaluate, config_file, trained, capsys):
  shared = (f'--workdir={trained}', f'--config={config_file}')
  assert evaluate(*shared)[0] == 2
  assert '/no/such/folder' in capsys.readouterr().err
  assert evaluate(*shared, '--evaluators=part')[0] == 0


@pytest.mark.parametrize(('flags', 'words'), [
    (['--evaluators=fewshoot'], "Did you mean 'fewshot'?"),
    (['--config.evals.knn.k=3'], 'Unknown evaluator'),
    (['--evaluators=knn', '--config.evals.knn.kk=3'], 'Unknown key'),
])
def test_misspelt_names_and_missing_data_are_errors(
    evaluate, trained, capsys, flags, words):
  assert evaluate(f'--workdir={trained}', *flags)[0] == 2
  assert words in capsys.readouterr().err


@pytest.fixture(scope='module')
def foreign(trained, tmp_path_factory):
  """The weights of the run in another format."""
  path = tmp_path_factory.mktemp('foreign') / 'weights.npz'
  vit_jax.load(trained, log=None).save(path, form='npz')
  return path


def test_an_open_config_takes_the_model_of_the_weights(
    evaluate, one_device, foreign, capsys):
  status, figures = evaluate(
      f'--workdir={foreign}', '--evaluators=knn', '--config.evals.knn.k=3',
      '--config=configs/finetune.py:dataset=digits,batch_size=24',
      f'--config.init.checkpoint={foreign}',
      '--config.evals.knn.train_split=train[:72]',
      '--config.evals.knn.split=test[:48]')
  assert status == 0
  assert figures['metrics']['knn/examples'] == 48
  printed = capsys.readouterr().out
  assert printed.count('\n  model: ') == 1 and 'overrides' not in printed


def test_an_open_config_takes_the_model_of_the_run(evaluate, trained):
  status, figures = evaluate(
      f'--workdir={trained}', '--evaluators=test',
      '--config=configs/finetune.py:dataset=digits,batch_size=24')
  assert status == 0 and figures['metrics']['test/examples'] == 360


def test_logits_as_features_are_those_of_the_head(
    evaluate, one_device, trained):
  """A head that is not loaded has equal logits for every image."""
  status, figures = evaluate(
      f'--workdir={trained}', '--evaluators=knn',
      '--config.evals.knn.feature=logits',
      '--config.evals.knn.train_split=train[:120]',
      '--config.evals.knn.split=test[:40]')
  assert status == 0 and figures['metrics']['knn/feature_rank'] > 1.5


def test_weights_are_evaluated_with_their_scale_of_pixels(
    evaluate, one_device, trained, tmp_path, capsys):
  model = vit_jax.load(trained, log=None)
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, mean=(0.2,) * 3, ops=(
          ops_lib.Resize(shorter=9), ops_lib.CentralCrop((8, 8))))).save(
              tmp_path / 'x.npz', form='npz')
  accuracies = []
  for flags in ((), ('--config.data.mean=0.2',), ('--config.data.mean=0.5',)):
    status, figures = evaluate(
        f'--workdir={tmp_path / "x.npz"}', *flags, '--evaluators=test',
        '--config.evals.test.split=test[:48]',
        '--config=configs/finetune.py:dataset=digits,batch_size=24')
    assert status == 0
    accuracies.append(figures['metrics']['test/loss'])
    printed = capsys.readouterr().out
    assert ('data.mean is 0.5, but' in printed) == (len(accuracies) == 3)
    assert "data.eval_ops is [{'op': 'resize'}], but `predict`" in printed
  assert accuracies[0] == accuracies[1] != accuracies[2]


def test_representations_of_weights_with_another_or_no_head_are_evaluated(
    evaluate, foreign, config_file, tmp_path, capsys):
  with np.load(foreign) as file:
    np.savez(tmp_path / 'headless.npz', **{
        key: array for key, array in file.items()
        if not key.startswith('head')})
  for path, source, words in (
      (foreign, table(tmp_path, 'abc'), '--evaluators=knn'),
      (tmp_path / 'headless.npz', table(tmp_path / 'more', '0123456789'),
       'head/dense/kernel')):
    shared = (f'--workdir={path}', f'--config={config_file}',
              f'--config.data.source={source}', '--config.model.num_heads=2')
    assert evaluate(
        *shared, '--evaluators=part', '--config.evals.part.split=test')[0] == 2
    assert words in capsys.readouterr().err
    status, figures = evaluate(
        *shared, '--evaluators=knn', '--config.evals.knn.k=3')
    assert status == 0 and 'knn/examples' in figures['metrics']
    assert not (path.parent / 'evals').exists()


LABELS = {'model': 'cde', 'reordered': 'dec', 'nameless': ''}


@pytest.mark.parametrize(('classes', 'weights', 'share'), [
    pytest.param('cd', 'model', 3 / 5, marks=pytest.mark.slow),
    pytest.param('cde', 'reordered', 3 / 7, marks=pytest.mark.slow),
    ('cd', 'reordered', 3 / 5), ('acd', 'nameless', 2 / 7)])
def test_classes_are_matched_by_name_or_with_a_note_by_index(
    evaluate, one_device, tmp_path, capsys, classes, weights, share):
  for name in classes:
    for split in ('train', 'test'):
      for i in range(2 + (name == 'd')):
        pictures.save(tmp_path / 'data' / split / name / f'{i}.png',
                      Image.new('RGB', (8, 8)))
  # It always predicts d, or class 1.
  labels = LABELS[weights]
  model = load_lib.create(num_classes=3, resolution=8, **toy.CONFIG['model'])
  model.params['head']['dense']['bias'] = np.float32(
      [name == 'd' for name in labels] or [0, 1, 0])
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, labels=tuple(labels))).save(tmp_path / 'weights')
  config = toy.write(tmp_path / 'config.py', batch_size=8,
                     evals={'test': {'split': 'test'}})
  status, figures = evaluate(
      f'--workdir={tmp_path}/weights', f'--config={config}',
      f'--config.data.source={tmp_path}/data', '--evaluators=test,knn',
      '--config.evals.knn.k=3')
  assert status == 0
  assert figures['metrics']['test/accuracy'] == pytest.approx(share)
  assert capsys.readouterr().out.count('has no class names') == (
      weights == 'nameless')
