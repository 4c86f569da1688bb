"""Training as a person runs it: in a process that may be killed."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import main
import vit_jax
from vit_jax import evals
from vit_jax import run as run_lib
from vit_jax import tree
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.training import health
from vit_jax.training import signals
from vit_jax.training import writer

ROOT = pathlib.Path(__file__).parent.parent.parent

# Everything that draws random numbers, and everything that carries a state.
CONFIG = """
from ml_collections import ConfigDict

def get_config(source: str = 'digits'):
  return ConfigDict({
      'total': {'steps': 24}, 'batch_size': 16, 'accumulation': 2,
      'averaging': 0.9,
      'model': {'width': 8, 'depth': 2, 'num_heads': 2, 'mlp_dim': 16,
                'patch': 4, 'dropout': 0.1, 'attention_dropout': 0.1,
                'stochastic_depth': 0.1},
      'data': {'source': source, 'resolution': 8, 'mixup': 0.2, 'cutmix': 1.0,
               'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'},
                             {'op': 'randaugment'}]},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3, 'weight_decay': 0.1,
                    'clip_norm': 1.0, 'momentum_dtype': 'bfloat16',
                    'schedule': {'name': 'cosine', 'warmup': {'percent': 10}}},
      'evals': {'test': {'every': {'steps': 8}, 'batch_size': 120}},
      'log': {'every': {'steps': 3}},
      'checkpoint': {'every': {'steps': 5}, 'best': 'test/loss',
                     'best_mode': 'min'},
  })
"""

STAGES = """
from ml_collections import ConfigDict

def get_config():
  return ConfigDict({
      'total': {'steps': 2}, 'batch_size': 8,
      'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
                'patch': 4},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                    'schedule': {'name': 'constant'}},
      'evals': {'test': {'batch_size': 120}},
      'stages': {
          'pretrain': {
              'model': {'representation_layer': True},
              'data': {'source': 'shapes', 'resolution': 8,
                       'shapes': {'num_examples': 32,
                                  'num_test_examples': 16}},
              'objective': {'loss': 'sigmoid'},
          },
          'finetune': {
              'data': {'source': 'digits', 'resolution': [12, 8]},
              'init': {'stage': 'pretrain'},
          },
      },
  })
"""

# What depends on the time of day, not on the run.
MEASURED = ('images_per_sec', 'wait_share', 'device_hours', 'core_hours',
            'host_memory_bytes')


@pytest.fixture(scope='module')
def config_file(tmp_path_factory):
  path = tmp_path_factory.mktemp('config') / 'toy.py'
  path.write_text(CONFIG)
  return str(path)


@pytest.fixture(scope='module')
def environment(tmp_path_factory):
  """One compile cache for the runs of this file: a restart is what is tested.
  """
  return {**os.environ, 'JAX_PLATFORMS': 'cpu',
          'JAX_COMPILATION_CACHE_DIR': str(tmp_path_factory.mktemp('cache'))}


def command(*arguments):
  return [sys.executable, str(ROOT / 'main.py'), *map(str, arguments)]


@pytest.fixture(scope='module')
def whole(config_file, environment, tmp_path_factory):
  """A run that nothing disturbed; returns its workdir and what it printed."""
  workdir = tmp_path_factory.mktemp('whole')
  done = subprocess.run(
      command(f'--config={config_file}', f'--workdir={workdir}',
              f'--json={workdir}/figures.json', '--profile=2'),
      env=environment, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  return workdir, done.stdout


def restored(workdir):
  """Returns the leaves of the last state, and the counters."""
  config = config_lib.resolve(json.loads((workdir / 'config.json').read_text()))
  experiment = experiment_lib.build(config, devices=jax.devices()[:1])
  with manager.Checkpoints(workdir, config.checkpoint) as saved:
    found = saved.restore(experiment.abstract_state)
  return {name: np.asarray(leaf)
          for name, leaf in tree.flatten(found.state).items()}, found.progress


def rows(workdir):
  return [{name: value for name, value in row.items()
           if name.split('/')[-1] not in MEASURED}
          for row in writer.read_rows(workdir)]


def assert_same_run(workdir, other):
  leaves, progress = restored(workdir)
  expected, expected_progress = restored(other)
  assert leaves.keys() == expected.keys()
  assert any(name.startswith('average/') for name in leaves)
  assert any(leaf.dtype.name == 'bfloat16' for leaf in leaves.values())
  different = [name for name, leaf in leaves.items()
               if leaf.tobytes() != expected[name].tobytes()]
  assert different == []
  for counted in ('best', 'best_step', 'evals', 'images', 'flops',
                  'unimproved', 'unimproved_steps'):
    assert progress[counted] == expected_progress[counted]
  assert 0 < progress['secs'] <= progress['device_secs_by_kind']['cpu']
  assert rows(workdir) == rows(other)


def start_and_stop(
    config_file, environment, workdir, signum, *flags, at):
  """Starts a run and sends a signal once a checkpoint `at` is there."""
  process = subprocess.Popen(
      command(f'--config={config_file}', f'--workdir={workdir}',
              '--config.data.source=digits',
              *(f'--config.{flag}' for flag in flags)),
      env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      text=True)
  deadline = time.monotonic() + 300
  while not (workdir / 'checkpoints' / 'latest' / str(at)).exists():
    assert process.poll() is None, process.stdout.read()
    assert time.monotonic() < deadline
    time.sleep(0.002)
  process.send_signal(signum)
  output, _ = process.communicate(timeout=300)
  return process.returncode, output


def test_a_killed_run_goes_on_bit_for_bit(
    whole, config_file, environment, tmp_path):
  for at in (5, 15):  # Killed twice.
    code, _ = start_and_stop(
        config_file, environment, tmp_path, signal.SIGKILL, at=at)
    assert code == -signal.SIGKILL
    assert max(row['step'] for row in rows(tmp_path)) < 24
  done = subprocess.run(
      command(f'--config={config_file}', f'--workdir={tmp_path}'),
      env=environment, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  assert 'Resuming from step' in done.stdout
  assert_same_run(tmp_path, whole[0])


@pytest.mark.parametrize(('signum', 'status'), [
    (signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_saves_before_leaving(
    whole, config_file, environment, tmp_path, signum, status):
  code, output = start_and_stop(
      config_file, environment, tmp_path, signum, at=5)
  assert code == status
  assert 'saved at step' in output
  saved_at = int(output.split('saved at step ')[1].split('.')[0])
  assert checkpoint_source.find(tmp_path).path.name == str(saved_at)
  assert 5 <= saved_at < 24
  done = subprocess.run(
      command(f'--config={config_file}', f'--workdir={tmp_path}'),
      env=environment, capture_output=True, text=True, check=False)
  assert f'Resuming from step {saved_at}' in done.stdout
  assert_same_run(tmp_path, whole[0])


def test_a_killed_run_ends_early_where_an_undisturbed_one_does(
    config_file, environment, tmp_path):
  # The head stays at zero, and the loss what it is at the first evaluation.
  flags = ('checkpoint.patience=1', 'optimizer.learning_rate=0')
  whole = run_lib.train(build(config_file, *flags), tmp_path / 'whole')
  assert (whole['steps'], whole['best']['step']) == (16, 8)
  code, _ = start_and_stop(
      config_file, environment, tmp_path / 'killed', signal.SIGKILL, *flags,
      at=10)
  assert code == -signal.SIGKILL
  done = subprocess.run(
      command(f'--config={config_file}', f'--workdir={tmp_path}/killed',
              *(f'--config.{flag}' for flag in flags)),
      env=environment, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  assert 'ended at step 16: test/loss was best at step 8' in done.stdout
  assert_same_run(tmp_path / 'killed', tmp_path / 'whole')


def test_the_workdir_holds_what_the_readme_says(whole, experiment):
  workdir, output = whole
  assert (workdir / 'curves.png').read_bytes().startswith(b'\x89PNG')
  assert list(workdir.glob('events.out.tfevents.*'))
  summary = json.loads((workdir / 'summary.json').read_text())
  assert summary == json.loads((workdir / 'figures.json').read_text())
  assert summary['steps'] == 24
  assert summary['images'] == 24 * 16
  assert summary['device_hours'] > 0
  assert summary['core_hours_by_kind'] == {'cpu': summary['device_hours']}
  per_image = experiment.flops_per_image
  assert summary['flops'] == 3 * per_image * 24 * 16
  last = {**rows(workdir)[-2], **rows(workdir)[-1]}
  assert summary['metrics']['test/accuracy'] == last['test/accuracy']
  assert summary['best']['value'] == min(
      row['test/loss'] for row in rows(workdir) if 'test/loss' in row)
  best = checkpoint_source.find(workdir, which='best')
  assert best.path.name == str(summary['best']['step'])
  assert best.config == json.loads((workdir / 'config.json').read_text())
  for words in ('1,437 images / 16', 'parameters', 'FLOP per image',
                'memory:', 'qkv_kernel', 'Summary', ' exaFLOPs, ',
                ' core-hours on cpu', f'step {summary["best"]["step"]}'):
    assert words in output


def test_a_profile_opens_in_tensorboard_and_perfetto(whole):
  profile = whole[0] / 'profile'
  assert list(profile.rglob('*.xplane.pb'))
  assert list(profile.rglob('perfetto_trace.json.gz'))


def test_a_finished_run_is_not_trained_again(whole, config_file, environment):
  workdir, _ = whole
  before = (workdir / 'metrics.jsonl').read_bytes()
  done = subprocess.run(
      command('train', f'--config={config_file}', f'--workdir={workdir}'),
      env=environment, capture_output=True, text=True, check=True)
  assert 'already finished' in done.stdout
  assert (workdir / 'metrics.jsonl').read_bytes() == before


def test_evaluate_finds_what_training_measured(
    whole, environment, tmp_path):
  workdir, _ = whole
  done = subprocess.run(
      command('evaluate', f'--workdir={workdir}', f'--json={tmp_path}/e.json'),
      env=environment, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  found = json.loads((tmp_path / 'e.json').read_text())
  summary = json.loads((workdir / 'summary.json').read_text())
  assert found['parameters'] == 'average'
  assert found['metrics']['test/examples'] == 360
  for name, value in found['metrics'].items():
    assert value == pytest.approx(summary['metrics'][name], rel=1e-6)


def test_training_imports_neither_tensorflow_nor_torch(
    config_file, environment, tmp_path):
  program = (
      'import sys; sys.path.insert(0, sys.argv[1]); import main\n'
      'code = main.main(["--config=" + sys.argv[2], "--workdir=" + sys.argv[3],'
      ' "--config.total.steps=1"])\n'
      'heavy = {"tensorflow", "torch", "tensorboard"} & set(sys.modules)\n'
      'sys.exit(f"imported {heavy}" if heavy else code)\n')
  done = subprocess.run(
      [sys.executable, '-c', program, str(ROOT), config_file, str(tmp_path)],
      env=environment, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr


def test_names_of_classes_and_preprocessing_travel_with_the_checkpoint(whole):
  model = vit_jax.load(whole[0], log=None)
  assert model.preprocess.labels == tuple(str(digit) for digit in range(10))
  assert model.predict(np.zeros((8, 8), np.uint8)).names[0] in '0123456789'


@pytest.fixture
def experiment(config_file):
  return build(config_file)


def build(config_file, *flags):
  config = config_lib.load(config_file, flags)['']
  return experiment_lib.build(config, devices=jax.devices()[:1])


def test_an_evaluation_that_was_cut_off_is_done_again(
    whole, experiment, tmp_path):
  evaluate = experiment.evaluators['test'].details
  calls = []

  def cut_off(params, between):
    calls.append(1)
    if len(calls) == 2:
      raise signals.Stopped(signal.SIGTERM)
    return evaluate(params, between)

  cut = dataclasses.replace(experiment, evaluators={
      'test': evals.Evaluator(cut_off)})
  with pytest.raises(signals.Stopped):
    run_lib.train(cut, tmp_path)
  assert checkpoint_source.find(tmp_path).path.name == '16'
  assert [row['step'] for row in rows(tmp_path) if 'test/loss' in row] == [8]
  run_lib.train(experiment, tmp_path)
  assert [row['step'] for row in rows(tmp_path) if 'test/loss' in row] == [
      8, 16, 24]
  assert rows(tmp_path) == rows(whole[0])


def test_a_loss_that_is_not_finite_stops_and_names_it(config_file, tmp_path):
  diverging = build(
      config_file, 'optimizer.learning_rate=1e37', 'optimizer.clip_norm=none',
      'optimizer.weight_decay=0', 'log.every.steps=1',
      'checkpoint.every.steps=1')
  with pytest.raises(health.NonFiniteError) as error:
    run_lib.train(diverging, tmp_path)
  assert 'Step ' in str(error.value)
  assert 'qkv_kernel' in str(error.value)
  step = int(str(error.value).split('Step ')[1].split(':')[0])
  kept = checkpoint_source.find(tmp_path)
  assert int(kept.path.name) < step
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(kept.load()))


def test_a_changed_config_is_said(config_file, tmp_path, capsys):
  run_lib.train(build(config_file, 'total.steps=2'), tmp_path)
  capsys.readouterr()
  run_lib.train(build(config_file, 'total.steps=3'), tmp_path)
  output = capsys.readouterr().out
  assert 'total.steps: 2 -> 3' in output
  assert 'Resuming from step 2' in output


def test_another_model_in_the_workdir_is_an_error(config_file, tmp_path):
  run_lib.train(build(config_file, 'total.steps=1'), tmp_path)
  with pytest.raises(ValueError, match='another model') as error:
    run_lib.train(build(config_file, 'model.mlp_dim=32'), tmp_path)
  assert 'encoder/layers/mlp/hidden/kernel: expected (2, 8, 32), found' in str(
      error.value)


def test_stages_hand_over_their_parameters(environment, tmp_path):
  file = tmp_path / 'stages.py'
  file.write_text(STAGES)
  done = subprocess.run(
      command(f'--config={file}', f'--workdir={tmp_path}/run'),
      env=environment, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  lines = [line.split() for line in done.stdout.splitlines()]
  fates = {line[1]: line[0] for line in lines if len(line) > 1 and line[0] in (
      'loaded', 'resized', 'new', 'ignored')}
  assert fates['encoder/layers/mlp/hidden/kernel'] == 'loaded'
  assert fates['positions'] == 'resized'
  assert fates['head/dense/kernel'] == 'new'
  assert fates['representation/dense/kernel'] == 'ignored'
  summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  assert set(summary['stages']) == {'pretrain', 'finetune'}
  assert (tmp_path / 'run' / 'curves.png').exists()
  assert summary['stages']['finetune']['metrics']['test/examples'] == 360
  assert 'pretrain' in done.stdout.split('Summary')[1]


def test_a_finished_run_is_not_taken_for_another_one(config_file, tmp_path):
  run_lib.train(build(config_file, 'total.steps=1'), tmp_path)
  with pytest.raises(
      ValueError, match='finished, with a different config') as e:
    run_lib.train(build(config_file, 'total.steps=1',
                        'optimizer.learning_rate=5e-3'), tmp_path)
  assert 'optimizer.learning_rate: 0.001 -> 0.005' in str(e.value)
  # What does not change the result does not make it another run.
  again = build(config_file, 'total.steps=1', 'log.every.steps=7')
  assert run_lib.train(again, tmp_path)['steps'] == 1


def test_a_total_that_is_passed_already_is_an_error(config_file, tmp_path):
  run_lib.train(build(config_file, 'total.steps=3'), tmp_path)
  with pytest.raises(ValueError, match='at step 3, but the config ends at'):
    run_lib.train(build(config_file, 'total.steps=2'), tmp_path)


def test_images_are_counted_as_they_were_seen(config_file, tmp_path):
  run_lib.train(build(config_file, 'total.steps=2'), tmp_path)
  summary = run_lib.train(
      build(config_file, 'total.steps=3', 'batch_size=8'), tmp_path)
  assert summary['images'] == 2 * 16 + 8


def test_another_grid_of_as_many_patches_is_an_error(config_file, tmp_path):
  run_lib.train(build(config_file, 'total.steps=1'), tmp_path)
  with pytest.raises(ValueError, match='2x2 patches, but .* 1x4'):
    run_lib.train(build(config_file, 'total.steps=2',
                        'data.resolution=[4, 16]'), tmp_path)


def test_a_damaged_summary_is_made_again(config_file, tmp_path):
  summary = run_lib.train(build(config_file, 'total.steps=1'), tmp_path)
  (tmp_path / 'summary.json').write_text('{"steps": 1,')
  (tmp_path / 'config.json').write_text('{')
  again = run_lib.train(build(config_file, 'total.steps=1'), tmp_path)
  assert again['metrics'] == summary['metrics']
  assert json.loads((tmp_path / 'summary.json').read_text()) == again


def test_softmax_learns_from_several_labels_too(config_file, tmp_path):
  experiment = build(
      config_file, 'data.source=shapes', 'total.steps=1',
      'data.shapes.num_test_examples=4')
  assert experiment.abstract_batch['label'].shape[1:] == (32,)
  metrics = run_lib.train(experiment, tmp_path)['metrics']
  # The even distribution of an untrained model: log C, whatever the labels.
  assert metrics['train/loss'] == pytest.approx(
      np.log(experiment.dataset.num_classes), rel=1e-5)


def test_a_stage_that_cannot_start_is_known_before_the_first(
    tmp_path, capsys):
  file = tmp_path / 'stages.py'
  file.write_text(STAGES)
  status = main.main([f'--config={file}', f'--workdir={tmp_path}/run',
                      '--config.stages.finetune.model.width=32'])
  assert status == 2
  assert 'does not fit the model' in capsys.readouterr().err
  assert not (tmp_path / 'run').exists()


def test_evaluation_at_another_resolution_resizes_the_positions(
    whole, capsys, tmp_path):
  status = main.main([
      'evaluate', f'--workdir={whole[0]}', '--config.data.resolution=[12, 16]',
      f'--json={tmp_path}/new/figures.json'])
  assert status == 0
  assert 'resized positions: (5, 8) -> (13, 8)' in capsys.readouterr().out
  figures = json.loads((tmp_path / 'new' / 'figures.json').read_text())
  assert figures['metrics']['test/examples'] == 360


def test_a_run_starts_from_weights_of_another_format(
    whole, environment, tmp_path):
  """Written with the published names, read by the ordinary fine-tuning."""
  npz = tmp_path / 'weights.npz'
  vit_jax.load(whole[0], log=None).save(npz, form='npz')
  file = tmp_path / 'tune.py'
  file.write_text(CONFIG.replace("'averaging': 0.9,", ''))
  status = main.main([
      f'--config={file}', f'--workdir={tmp_path}/run',
      f'--config.init.checkpoint={npz}', '--config.total.steps=1',
      '--config.data.resolution=[12, 8]'])
  assert status == 0
  trained = checkpoint_source.find(tmp_path / 'run')
  assert trained.shapes['positions'].shape == (7, 8)
  config = json.loads((tmp_path / 'run' / 'config.json').read_text())
  assert config['init']['checkpoint'] == str(npz)
