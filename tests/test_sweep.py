"""A sweep chooses on held-out data, and every run of it is an ordinary one."""

import functools
import json
import os
import pathlib
import shutil
import signal

from etils import epath
import jax
import pytest

import main
from vit_jax import run as run_lib
from vit_jax import sweep as sweep_lib
from vit_jax.analysis import sweep_plot
from vit_jax.commands import sweep as command
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.sweep import runs
from vit_jax.training import health
from vit_jax.training import signals

ROOT = pathlib.Path(__file__).parent.parent

CONFIG = """
from ml_collections import ConfigDict

def get_config(split: str = 'train', development: bool = False,
               best: str = ''):
  sweep = {'grid': {'optimizer': {'learning_rate': [1e-6, 0.01]}},
           'held_out': 20, 'seeds': 2}
  if development:
    sweep['development'] = {
        'data': {'split': 'train[:100]'},
        'evals': {'dev': {'split': 'test'}}}
  return ConfigDict({
      'total': {'steps': 15}, 'batch_size': 32,
      'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
                'patch': 4, 'pooling': 'average'},
      'data': {'source': 'digits', 'resolution': 8, 'split': split},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                    'schedule': {'name': 'constant'}},
      'evals': {'test': {'batch_size': 120}},
      'checkpoint': {'every': {'percent': 100}, 'best': best},
      'sweep': sweep,
  })
"""


@pytest.fixture(scope='module')
def file(tmp_path_factory):
  path = tmp_path_factory.mktemp('config') / 'toy.py'
  path.write_text(CONFIG)
  return str(path)


@pytest.fixture(scope='module')
def swept(file, tmp_path_factory):
  """A whole sweep, as a person runs it: its folder and what it returned."""
  workdir = tmp_path_factory.mktemp('sweep')
  build = functools.partial(
      experiment_lib.build, devices=jax.devices()[:1])  # Faster than on eight.
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(experiment_lib, 'build', build)
    code = main.main(['sweep', f'--config={file}', f'--workdir={workdir}'])
  assert code == 0
  return workdir, json.loads((workdir / 'sweep.json').read_text())


def config_of(workdir, name):
  return json.loads((workdir / 'runs' / name / 'config.json').read_text())


def summary_of(workdir, name):
  return json.loads((workdir / 'runs' / name / 'summary.json').read_text())


def test_the_grid_never_sees_the_test_split(swept):
  workdir, result = swept
  assert [row['name'] for row in result['grid']] == [
      'learning_rate=1e-06', 'learning_rate=0.01']
  for row in result['grid']:
    config = config_of(workdir, row['name'])
    assert config['data']['split'] == 'train[:80%]'
    assert list(config['evals']) == ['dev']
    assert config['evals']['dev']['split'] == 'train[80%:]'
    assert config['optimizer']['learning_rate'] == (
        row['values']['optimizer.learning_rate'])
    metrics = summary_of(workdir, row['name'])['metrics']
    assert not [name for name in metrics if name.startswith('test/')]
    assert metrics['dev/examples'] == 287  # A fifth of 1,437.
    assert row['value'] == metrics['dev/accuracy']


def test_the_best_is_trained_on_everything_with_each_seed(swept):
  workdir, result = swept
  best = max(result['grid'], key=lambda row: row['value'])
  assert result['best']['name'] == best['name'] == 'learning_rate=0.01'
  assert sorted(result['final']['runs']) == ['final,seed=0', 'final,seed=1']
  values = []
  for seed in (0, 1):
    config = config_of(workdir, f'final,seed={seed}')
    assert config['seed'] == seed
    assert config['data']['split'] == 'train'
    assert config['optimizer']['learning_rate'] == 0.01
    metrics = summary_of(workdir, f'final,seed={seed}')['metrics']
    assert metrics['test/examples'] == 360
    values.append(metrics['test/accuracy'])
  assert values[0] != values[1]
  mean = (values[0] + values[1]) / 2
  accuracy = result['final']['statistics']['test/accuracy']
  assert accuracy['mean'] == pytest.approx(mean)
  # Of two, with n - 1: the distance over the root of two.
  assert accuracy['std'] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)


def test_the_table_and_the_picture_say_what_came_of_it(swept, file, capsys):
  workdir, result = swept
  assert (workdir / 'sweep.png').read_bytes().startswith(b'\x89PNG')
  code = main.main(['sweep', f'--config={file}', f'--workdir={workdir}',
                    f'--json={workdir}/copy.json'])
  output = capsys.readouterr().out
  assert code == 0
  assert output.count('already finished') == 4  # None was run again.
  values = result['final']['statistics']['test/accuracy']
  assert (f'{100 * values["mean"]:.2f} ± {100 * values["std"]:.2f} %'
          in output)
  assert '<- best' in output.split('Chosen by')[1].split('Trained')[0]
  assert json.loads((workdir / 'copy.json').read_text()) == result


def test_another_sweep_in_the_same_folder_is_refused(swept, file, capsys):
  workdir, result = swept
  flags = ['--seeds=3', '--config.total.steps=16', '--config.log.every.steps=1',
           '--grid', 'optimizer.learning_rate=1e-6,0.02']
  assert main.main(
      ['sweep', f'--config={file}', f'--workdir={workdir}', *flags]) == 2
  error = capsys.readouterr().err
  assert 'holds another sweep' in error
  assert 'seeds: 2 -> 3' in error
  assert 'config.total.steps: 15 -> 16' in error
  assert 'grid.optimizer.learning_rate: [1e-06, 0.01] -> [1e-06, 0.02]' in error
  assert 'log.every' not in error  # That changes no result.
  assert json.loads((workdir / 'sweep.json').read_text()) == result


class FakeRuns:
  """In place of training: notes what was asked for, writes a summary."""

  def __init__(self, after=lambda name: None):
    self.names = []
    self._after = after

  def __call__(self, experiment, workdir, **_):
    workdir = pathlib.Path(workdir)
    self.names.append(workdir.name)
    config = experiment.config
    if config.batch_size == 8:
      raise health.NonFiniteError('The loss is not finite at step 3.\nMore.')
    value = config.optimizer.learning_rate + 0.1 * config.seed
    if config.batch_size == 24:
      value = float('nan')
    summary = {'metrics': {f'{name}/accuracy': value for name in config.evals}}
    workdir.mkdir(parents=True)
    (workdir / 'summary.json').write_text(json.dumps(summary))
    self._after(workdir.name)
    return summary


ALL = ['learning_rate=1e-06', 'learning_rate=0.01', 'final,seed=0',
       'final,seed=1']


@pytest.mark.parametrize('lost', ALL)
def test_a_run_that_was_lost_is_made_again_and_no_other(
    file, tmp_path, monkeypatch, lost):
  runs = FakeRuns()
  monkeypatch.setattr(run_lib, 'train', runs)
  before = sweep_lib.run(plan(file), tmp_path)
  assert runs.names == ALL
  shutil.rmtree(tmp_path / 'runs' / lost)
  assert sweep_lib.run(plan(file), tmp_path) == before
  assert runs.names == [*ALL, lost]


@pytest.mark.parametrize('last', range(4))
def test_a_signal_after_any_run_stops_and_the_rest_follows_later(
    file, tmp_path, monkeypatch, last):
  def stop(name):
    if name == ALL[last]:
      os.kill(os.getpid(), signal.SIGTERM)

  first, second = FakeRuns(after=stop), FakeRuns()
  monkeypatch.setattr(run_lib, 'train', first)
  with pytest.raises(signals.Stopped) as stopped:
    sweep_lib.run(plan(file), tmp_path)
  assert stopped.value.exit_code == 75
  monkeypatch.setattr(run_lib, 'train', second)
  result = sweep_lib.run(plan(file), tmp_path)
  assert first.names == ALL[:last + 1] and second.names == ALL[last + 1:]
  assert result['final']['statistics']['test/accuracy'] == {
      'mean': pytest.approx(0.06), 'std': pytest.approx(0.1 / 2**0.5)}


# Planning.


def plan(file, *overrides, **section):
  return sweep_lib.plan(file, overrides, **section)


def test_several_fields_make_all_combinations(file):
  sweep = plan(file, grid=command.parse_grid([
      'data.mixup=0,0.2', 'total.steps=3,4', 'model.pooling=cls']))
  assert [p.name for p in sweep.points] == [
      f'mixup={mixup},steps={steps},pooling=cls'
      for mixup in (0.0, 0.2) for steps in (3, 4)]
  assert {p.config.total.steps for p in sweep.points} == {3, 4}
  assert {p.development.model.pooling for p in sweep.points} == {'cls'}
  assert sweep.to_plain()['grid'] == {
      'data.mixup': [0.0, 0.2], 'total.steps': [3, 4],
      'model.pooling': ['cls']}


def test_values_may_hold_commas_in_brackets():
  assert command.split_values('[1, 2],3,{"a": (4, 5)}') == [
      '[1, 2]', '3', '{"a": (4, 5)}']


def test_names_are_those_of_folders_and_none_is_there_twice(file):
  sweep = plan(file, grid=command.parse_grid(['data.source=./x/y,./x y']))
  assert [p.name for p in sweep.points] == [
      '0,source=.-x-y', '1,source=.-x-y']


def test_every_part_of_a_compound_split_is_held_out(file):
  sweep = plan(f'{file}:split=train+test', held_out=10)
  config = sweep.points[0].development
  assert config.data.split == 'train[:90%]+test[:90%]'
  assert config.evals['dev'].split == 'train[90%:]+test[90%:]'


def test_a_metric_of_loss_is_minimised(file):
  assert plan(file).mode == 'max'
  assert plan(file, metric='dev/loss').mode == 'min'


def test_the_best_checkpoint_by_another_evaluator_is_left_out_of_the_grid(file):
  sweep = plan(f'{file}:best=test/accuracy')
  assert sweep.points[0].development.checkpoint.best == ''
  assert sweep.points[0].config.checkpoint.best == 'test/accuracy'


@pytest.mark.parametrize(('grid', 'section', 'words'), [
    (['optimizer.learning_rate=0.1,abc'], {},
     "at optimizer.learning_rate=abc: optimizer.learning_rate must be float, "
     "but is 'abc'"),
    (['optimizer.lerning_rate=0.1'], {}, "Did you mean 'learning_rate'?"),
    (['optimizr.learning_rate=0.1'], {}, "Did you mean 'optimizer'?"),
    (['data.split=train'], {}, 'data.split cannot be swept'),
    (['seed=1,2'], {}, 'seed cannot be swept'),
    (['evals.test.split=train'], {}, 'evals.test.split cannot be swept'),
    (['batch_size=8,8'], {}, 'each once'),
    (['batch_size=8,'], {}, '--grid takes section.key=value,value'),
    (['batch_size'], {}, '--grid takes section.key=value,value'),
    (['batch_size=8', 'batch_size=9'], {}, 'names batch_size twice'),
    ([], {'metric': 'dev/acuracy'}, "sweep.metric 'acuracy'. Did you mean "
                                    "'accuracy'?"),
    ([], {'metric': 'test/accuracy'}, "no evaluator is called 'test'"),
    ([], {'seeds': 0}, 'seeds must be at least 1'),
    ([], {'held_out': 0}, 'held_out is a whole percentage'),
])
def test_a_mistake_is_known_before_anything_runs(file, grid, section, words):
  with pytest.raises(ValueError) as error:
    plan(file, grid=command.parse_grid(grid), **section)
  assert words in str(error.value)


def test_a_part_of_a_split_needs_the_development_written_out(file):
  with pytest.raises(ValueError, match='what else to hold out'):
    plan(f'{file}:split=train[:50%]')


def test_a_config_of_stages_is_refused():
  with pytest.raises(ValueError, match='has the stages'):
    plan(f'{ROOT}/configs/quickstart.py',
         grid={'batch_size': ('8',)})


def test_a_config_without_a_grid_is_told_how_to_give_one():
  with pytest.raises(ValueError, match='--grid optimizer.learning_rate='):
    plan(f'{ROOT}/configs/cifar10.py')


def test_choosing_by_the_test_split_is_refused(file, tmp_path):
  with pytest.raises(ValueError, match="reads 'test' of digits"):
    sweep_lib.run(plan(f'{file}:development=true'), tmp_path)
  assert not (tmp_path / 'runs').exists()


def test_a_point_that_cannot_be_wired_stops_all_before_the_first(
    file, tmp_path):
  sweep = plan(file, grid=command.parse_grid(['model.patch=4,3']))
  with pytest.raises(ValueError, match='run patch=3: An image of 8x8'):
    sweep_lib.run(sweep, tmp_path)
  assert not (tmp_path / 'runs').exists()


def test_a_setting_that_diverges_is_not_chosen_and_not_tried_again(
    file, tmp_path, monkeypatch):
  runs = FakeRuns()
  monkeypatch.setattr(run_lib, 'train', runs)
  sweep = plan(file, grid=command.parse_grid(['batch_size=8,24,16']))
  result = sweep_lib.run(sweep, tmp_path)
  assert [row['value'] for row in result['grid']] == [None, None, 0.001]
  assert result['grid'][0]['diverged'] == 'The loss is not finite at step 3.'
  assert result['best']['name'] == 'batch_size=16'
  sweep_lib.run(sweep, tmp_path)
  assert runs.names.count('batch_size=8') == 1
  sweep_plot.sweep(result, tmp_path / 'sweep.png')
  assert (tmp_path / 'sweep.png').stat().st_size > 1000


def test_a_grid_of_which_every_run_diverges_has_no_best(
    file, tmp_path, monkeypatch):
  monkeypatch.setattr(run_lib, 'train', FakeRuns())
  sweep = plan(file, grid=command.parse_grid(['batch_size=8']))
  with pytest.raises(ValueError, match='No run of the grid has a value'):
    sweep_lib.run(sweep, tmp_path)


def test_a_picture_of_several_fields_is_drawn(file, tmp_path, monkeypatch):
  monkeypatch.setattr(run_lib, 'train', FakeRuns())
  sweep = plan(file, grid=command.parse_grid(
      ['model.pooling=cls,average', 'optimizer.learning_rate=1e-3,1e-2,1e-1']))
  result = sweep_lib.run(sweep, tmp_path)
  sweep_plot.sweep(result, tmp_path / 'sweep.svg')
  text = (tmp_path / 'sweep.svg').read_text()
  assert '<svg' in text
  assert result['best']['values'] == {
      'model.pooling': 'cls', 'optimizer.learning_rate': 0.1}


def test_deviations_are_none_of_a_single_run():
  values = runs.statistics([{'metrics': {'test/loss': 2.0}}])
  assert values == {'test/loss': {'mean': 2.0, 'std': None}}
  assert command.format_statistics('test/loss', values['test/loss']) == '2.00'
  assert command.format_statistics(
      'test/accuracy', {'mean': 0.5, 'std': 0.125}) == '50.00 ± 12.50 %'


def test_what_is_finished_all_processes_hear_from_the_first(
    tmp_path, monkeypatch):
  monkeypatch.setattr(runs.coordination, 'on_first', lambda name, act: ['a'])
  missing = config_lib.resolve({
      'total': {'steps': 1}, 'batch_size': 8,
      'model': {'variant': 'Ti/16'}, 'data': {'source': '/not/there'},
      'optimizer': {'name': 'adam', 'learning_rate': 1.0,
                    'schedule': {'name': 'constant'}}})
  assert not runs.build({'a': missing}, epath.Path(tmp_path))
