"""Command `evaluate` with the evaluators of the leaf."""

import dataclasses
import shutil

import numpy as np
import pytest

from tests import pictures
from tests import toy
from tests.commands.conftest import wide_terminal  # noqa: F401
from tests.commands.test_evaluate import config_file  # noqa: F401
from tests.commands.test_evaluate import evaluate  # noqa: F401
from tests.commands.test_evaluate import foreign  # noqa: F401
from tests.commands.test_evaluate import save
from tests.commands.test_evaluate import trained  # noqa: F401
import vit_jax
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax import run as run_lib
from vit_jax.experiment.config_file import read as read_config


def save_with_activation(run, activation, path):
  """Saves the model of a run with another activation, and returns it."""
  model = vit_jax.load(run, log=None)
  model = dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, activation=activation))
  model.save(path, form='npz')
  return model


@pytest.mark.parametrize('activation', [
    'softmax', pytest.param('sigmoid', marks=pytest.mark.slow)])
def test_probabilities_are_those_of_predict(
    evaluate, one_device, trained, tmp_path, activation):  # noqa: F811
  model = save_with_activation(trained, activation, tmp_path / 'x.npz')
  status, figures = evaluate(
      f'--workdir={tmp_path / "x.npz"}', '--evaluators=calibration',
      '--config.evals.calibration.split=test[:48]',
      '--config=configs/finetune.py:dataset=digits,resolution=8,batch_size=24')
  assert status == 0
  test = data.open_dataset(data.parse({'source': 'digits'}), split='test[:48]')
  images, labels = zip(*((test[i]['image'].repeat(3, -1), test[i]['label'])
                         for i in range(len(test))))
  found = np.zeros((len(test), 10))
  for row, one in zip(found, model.predict(images, top_k=10)):
    row[list(one.classes)] = one.probabilities
  assert figures['metrics']['calibration/brier'] == pytest.approx(
      np.square(found - np.eye(10)[list(labels)]).sum(-1).mean(), rel=1e-3)


@pytest.fixture(scope='module')
def findings(one_device, tmp_path_factory):
  """The folder of the config of a finished run on images with two labels."""
  folder = tmp_path_factory.mktemp('findings')
  table = pictures.write_table(folder, 'bee,ant,split', [
      f'{i % 2},{i % 3 // 2},{("train", "test")[i % 12 > 7]}'
      for i in range(24)])
  path = toy.write(
      folder / 'config.py', batch_size=8, model={'pooling': 'average'},
      objective={'name': 'supervised', 'loss': 'sigmoid'},
      data={'source': str(table), 'target': 'multi',
            'table': {'label': 'bee,ant'}})
  save(toy.build(**read_config(path)), folder / 'run', label_kind='multi')
  return folder


@pytest.mark.parametrize(('flags', 'sensitivity'), [
    ([], 0), pytest.param(['--sensitivity=0.9'], 0.9, marks=pytest.mark.slow),
    pytest.param(['--config.evals.roc.threshold_split=train'], 0,
                 marks=pytest.mark.slow)])
def test_thresholds_of_a_finished_run_are_stored_and_applied(
    evaluate, one_device, findings, tmp_path, capsys, flags, sensitivity):  # noqa: F811
  run = shutil.copytree(findings / 'run', tmp_path / 'run')
  assert vit_jax.load(run, log=None).thresholds == (0.5, 0.5)
  status, figures = evaluate(
      f'--workdir={run}', '--evaluators=roc', *flags, '--store-thresholds')
  metrics = figures['metrics']
  assert status == 0 and metrics['roc/sensitivity'] >= sensitivity
  optimistic = 'chooses thresholds on the images that it measures'
  assert (optimistic in capsys.readouterr().out) == (
      'threshold_split' not in ''.join(flags))
  model = vit_jax.load(run, log=None)
  assert dict(zip(model.preprocess.labels, model.thresholds)) == {
      name: metrics[f'roc/threshold_{name}'] for name in ('ant', 'bee')}
  assert main.main(['predict', f'--model={run}', f'{findings}/0.png']) == 0
  printed = capsys.readouterr().out
  for threshold in model.thresholds:
    assert f'{100 * threshold:.1f} %' in printed
  if sensitivity:  # The run still resumes from the checkpoint.
    config = read_config(f'{findings}/config.py')
    assert run_lib.train(
        toy.build(**{**config, 'total': {'steps': 3}}), run)['steps'] == 3


@pytest.mark.parametrize(('flags', 'words'), [
    (['--evaluators=imagenet_a'], 'imagenet_a'),
    (['--evaluators=objectnet'], 'objectnet-1.0/images'),
    (['--evaluators=part', '--sensitivity=0.9'], 'Use --evaluators=roc'),
    (['--evaluators=part', '--store-thresholds'], 'Use --evaluators=roc'),
    (['--evaluators=roc', '--sensitivity=90'], 'at most 1, but is 90'),
    (['--evaluators=roc', '--store-thresholds'], 'has 10 classes')])
def test_missing_data_and_thresholds_that_cannot_be_stored_are_errors(
    evaluate, one_device, trained, capsys, flags, words):  # noqa: F811
  assert evaluate(f'--workdir={trained}', *flags)[0] == 2
  assert words in ' '.join(capsys.readouterr().err.split())


def test_features_of_weights_with_a_sigmoid_are_measured_on_numbers(
    evaluate, trained, tmp_path):  # noqa: F811
  save_with_activation(trained, 'sigmoid', tmp_path / 'x.npz')
  table = pictures.write_table(tmp_path, 'label,split', [
      f'{i / 2},{("train", "test")[i > 7]}' for i in range(16)])
  status, figures = evaluate(
      f'--workdir={tmp_path / "x.npz"}', '--evaluators=spread',
      '--config=configs/finetune.py:batch_size=8,resolution=8,'
      f'dataset={table}', '--config.evals.spread.split=test',
      '--config.data.target=regression')
  assert status == 0
  assert figures['metrics']['spread/examples'] == 8


@pytest.mark.slow
def test_features_need_no_parameters_of_the_objective(
    evaluate, one_device, foreign, capsys):  # noqa: F811
  status, figures = evaluate(
      f'--workdir={foreign}', '--evaluators=knn', '--config.evals.knn.k=3',
      '--config.evals.knn.train_split=train[:96]',
      '--config.evals.knn.split=test[:24]',
      f'--config=configs/continue.py:checkpoint={foreign},data=digits,'
      'resolution=8,objective=mae')
  assert status == 0 and 'knn/accuracy' in figures['metrics']
  assert 'new ' not in capsys.readouterr().out
