"""A sweep from start to end, its resumption, its plan and its errors."""

import json
import shutil
import signal

import jax
import numpy as np
import pytest

from vit_jax import __main__ as main
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.experiment import config_file
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import runs
from vit_jax.extras.sweep import sweep as sweep_lib
from vit_jax.inference import load as load_lib
from vit_jax.run import signals

pytestmark = pytest.mark.slow  # It trains models.

ALL_RUNS = ['learning_rate=1e-06', 'learning_rate=0.01', 'final,seed=0',
            'final,seed=1']


def run_sweep(file, workdir, *flags, seeds=1):
  """Runs the command; returns its status and its result."""
  status = main.main(['sweep', f'--config={file}', f'--workdir={workdir}',
                      f'--seeds={seeds}', *flags])
  return status, json.loads((workdir / 'sweep.json').read_text())


@pytest.fixture(scope='module')
def swept(one_device, file, tmp_path_factory):
  """Folder and result of a complete sweep."""
  workdir = tmp_path_factory.mktemp('sweep')
  status, result = run_sweep(file, workdir, '--soup=uniform')
  assert status == 0
  return workdir, result


def read(workdir, run, name):
  return json.loads((workdir / 'runs' / run / name).read_text())


def test_grid_runs_never_see_the_test_split_and_final_ones_all_data(swept):
  workdir, result = swept
  assert [row['name'] for row in result['grid']] == ALL_RUNS[:2]
  for row in result['grid']:
    config = read(workdir, row['name'], 'config.json')
    assert config['data']['split'] == 'train[:80%]'
    assert {n: e['split'] for n, e in config['evals'].items()} == {
        'dev': 'train[80%:]'}
    assert config['optimizer']['learning_rate'] == (
        row['values']['optimizer.learning_rate'])
    metrics = read(workdir, row['name'], 'summary.json')['metrics']
    assert not [name for name in metrics if name.startswith('test/')]
    assert metrics['dev/examples'] == 287  # 20 % of 1,437.
    assert row['value'] == metrics['dev/accuracy']
  best = max(result['grid'], key=lambda row: row['value'])
  assert result['best']['name'] == best['name'] == 'learning_rate=0.01'
  name, = result['final']['runs']
  config = read(workdir, name, 'config.json')
  assert config['seed'] == 0 and config['data']['split'] == 'train'
  assert config['optimizer']['learning_rate'] == 0.01
  assert read(workdir, name, 'summary.json')['metrics']['test/examples'] == 360


def test_a_soup_is_written_and_reported_next_to_the_best_run(swept):
  workdir, result = swept
  params = [jax.tree.leaves(load_lib.load(path, log=None).params) for path in (
      workdir / 'soup_uniform',
      *(workdir / 'runs' / name for name in ALL_RUNS[:2]))]
  for mean, *each in zip(*params):
    np.testing.assert_allclose(mean, np.mean(each, axis=0), atol=1e-6)
  # Predictions of several labels depend on it.
  assert items.read_config(paths.find(
      workdir / 'soup_uniform') / 'progress')['label_kind'] == 'single'
  soup = result['soup']
  assert soup['members'] == [ALL_RUNS[1], ALL_RUNS[0]]
  assert main.main(['evaluate', f'--workdir={workdir}/soup_uniform',
                    f'--json={workdir}/soup.json']) == 0
  metrics = json.loads((workdir / 'soup.json').read_text())['metrics']
  assert metrics == pytest.approx(soup['metrics'])
  assert metrics.keys() == soup['best_metrics'].keys()
  assert soup['best_metrics']['test/loss'] != metrics['test/loss']


def test_a_finished_sweep_prints_its_table_without_training(
    swept, file, capsys):
  workdir, result = swept
  assert (workdir / 'sweep.png').read_bytes().startswith(b'\x89PNG')
  status, kept = run_sweep(file, workdir)  # Although this one makes no soup.
  assert (status, kept['soup']) == (0, result['soup'])
  capsys.readouterr()
  assert run_sweep(file, workdir, f'--json={workdir}/copy.json',
               '--soup=uniform') == (0, result)
  output = capsys.readouterr().out
  assert output.count('already finished') == 3
  assert 'Mean of 2 of 2 runs (uniform soup)' in output
  assert '<- best' in output.split('Selected by')[1].split('Trained')[0]
  assert json.loads((workdir / 'copy.json').read_text()) == result


def test_another_sweep_in_the_same_folder_is_an_error(swept, file, capsys):
  workdir, result = swept
  assert run_sweep(
      file, workdir, '--config.total.steps=16', '--config.log.every.steps=1',
      '--config.data.cache_mib=64', '--grid',
      'optimizer.learning_rate=1e-6,0.02', seeds=3) == (2, result)
  error = capsys.readouterr().err
  for words in (
      'holds another sweep', 'seeds: 1 -> 3', 'config.total.steps: 15 -> 16',
      'grid.optimizer.learning_rate: [1e-06, 0.01] -> [1e-06, 0.02]'):
    assert words in error
  # Neither affects the result.
  assert 'log.every' not in error and 'cache_mib' not in error


def test_a_setting_that_is_auto_again_has_changed():
  assert [runs._is_new_default(config_file.Difference(('data',), *each))
          for each in ((None, 'auto'), ('', None), (0.3, 'auto'))] == [
              True, True, False]


def plan(file, *overrides, grid=(), **section):
  return grid_lib.plan(
      file, overrides, grid=grid_lib.parse_flags(list(grid)), **section)['']


def test_only_lost_runs_are_repeated(file, tmp_path, training):
  first = sweep_lib.run(plan(file), tmp_path)
  assert training.names == ALL_RUNS
  assert training.held == [1] * len(ALL_RUNS)
  lost = [ALL_RUNS[1], ALL_RUNS[3]]
  for name in lost:
    shutil.rmtree(tmp_path / 'runs' / name)
  assert sweep_lib.run(plan(file), tmp_path) == first
  assert training.names == [*ALL_RUNS, *lost]


@pytest.mark.parametrize('last', [0, 1, 3])
def test_a_signal_stops_a_sweep_which_resumes_later(
    file, tmp_path, training, last):
  training.signal_after, training.signal = ALL_RUNS[last], signal.SIGTERM
  with pytest.raises(signals.Stopped) as stopped:
    sweep_lib.run(plan(file), tmp_path)
  assert stopped.value.exit_code == 75
  assert training.names == ALL_RUNS[:last + 1]
  result = sweep_lib.run(plan(file), tmp_path)
  assert training.names == ALL_RUNS
  assert result['final']['statistics']['test/accuracy'] == {
      'mean': pytest.approx(0.06), 'std': pytest.approx(0.1 / 2**0.5)}


def test_results_are_those_of_the_checkpoint_that_other_commands_read(
    file, tmp_path, training, capsys):
  status, result = run_sweep(
      file, tmp_path, '--config.checkpoint.best=test/accuracy', seeds=2)
  assert status == 0
  assert result['final']['checkpoint'] == 'best checkpoint by test/accuracy'
  assert result['final']['statistics']['test/accuracy']['mean'] == (
      pytest.approx(0.44))
  assert '44.00 ± 7.07 %' in capsys.readouterr().out
  # Grid runs have no evaluator of that name.
  assert [row['value'] for row in result['grid']] == [1e-6, 0.01]


def test_a_setting_is_selected_by_its_best_checkpoint(file, tmp_path, training):
  sweep = plan(
      file, 'checkpoint.best=test/accuracy', metric='test/accuracy',
      development={'data': {'split': 'train[:50%]'},
                   'evals': {'test': {'split': 'train[50%:]'}}})
  result = sweep_lib.run(sweep, tmp_path)
  assert [row['value'] for row in result['grid']] == [0.5 - 1e-6, 0.49]
  assert result['best']['name'] == 'learning_rate=1e-06'
  saved = tmp_path / 'sweep.json'
  result['best']['name'] = 'learning_rate=0.01'  # As of the last checkpoints.
  saved.write_text(json.dumps(result))
  with pytest.raises(ValueError, match='final runs of learning_rate=0.01, but '
                     'learning_rate=1e-06 is now the best'):
    sweep_lib.run(sweep, tmp_path)


def test_diverged_settings_are_neither_selected_nor_repeated(
    file, tmp_path, training):
  sweep = plan(file, grid=['batch_size=8,24,16'])
  result = sweep_lib.run(sweep, tmp_path)
  assert [row['value'] for row in result['grid']] == [None, None, 0.001]
  assert result['grid'][0]['diverged'] == 'The loss is not finite at step 3.'
  assert result['best']['name'] == 'batch_size=16'
  sweep_lib.run(sweep, tmp_path)
  assert training.names.count('batch_size=8') == 1
  with pytest.raises(ValueError, match='No run of the grid has a value'):
    sweep_lib.run(plan(file, grid=['batch_size=8']), tmp_path / 'none')


def test_several_fields_give_all_combinations(file):
  sweep = plan(file, grid=[
      'data.mixup=0,0.2', 'total.steps=3,4', 'model.remat=none'])
  assert [p.name for p in sweep.points] == [
      f'mixup={mixup},steps={steps},remat=none'
      for mixup in (0.0, 0.2) for steps in (3, 4)]
  assert {p.development.model.remat for p in sweep.points} == {'none'}
  assert sweep.to_plain()['grid'] == {
      'data.mixup': [0.0, 0.2], 'total.steps': [3, 4],
      'model.remat': ['none']}


def test_values_may_contain_commas_in_brackets():
  assert grid_lib.split_values('[1, 2],3,{"a": (4, 5)}') == [
      '[1, 2]', '3', '{"a": (4, 5)}']


def test_run_names_are_unique_folder_names(file):
  sweep = plan(file, grid=['data.source=./x/y,./x y'], metric='dev/accuracy')
  assert [p.name for p in sweep.points] == ['0,source=.-x-y', '1,source=.-x-y']
  long = grid_lib.run_name({'data.train_ops': 'flip,' * 60})
  assert len(long) == 200


def test_grid_runs_hold_out_every_part_and_keep_no_other_best_checkpoint(file):
  point = plan(file, 'data.split=train+test', 'checkpoint.best=test/accuracy',
               held_out=10).points[0]
  assert point.development.data.split == 'train[:90%]+test[:90%]'
  assert point.development.evals['dev'].split == 'train[90%:]+test[90%:]'
  assert point.development.checkpoint.best == ''
  assert point.config.checkpoint.best == 'test/accuracy'
