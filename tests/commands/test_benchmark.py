"""Benchmarks run in turn and measure each alternative separately."""

import json
import sys
import time

import jax
import psutil
import pytest

import main
from vit_jax.benchmarking import input_speed
from vit_jax.benchmarking import interleaved_timing
from vit_jax.benchmarking import matmul_peak
from vit_jax.benchmarking import startup_time
from vit_jax.benchmarking import workload
from vit_jax.commands import benchmark
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

pytestmark = pytest.mark.slow  # It trains models.

PROGRAM = """
import json, sys
for line in sys.stdin:
  sum(range(300_000))
  print(json.dumps({'images': 3 * int(line)}), flush=True)
"""


def test_pipelines_run_in_turn():
  done = []

  def read(count):
    done.append(count)
    return count

  with input_speed.program([sys.executable, '-c', PROGRAM]) as other:
    speeds = input_speed.interleave(
        {'other': other, 'ours': input_speed.Pipeline(read, psutil.Process())},
        batches=4, rounds=2, prefetched=7)
  assert done == [7, 4, 4]
  assert [s.images for s in speeds['other']] == [12, 12]
  assert [s.images for s in speeds['ours']] == [4, 4]


def test_speeds_are_medians_over_rounds():
  assert input_speed.medians([
      input_speed.Measurement(8, secs, cpu_secs)
      for secs, cpu_secs in ((2.0, 4.0), (1.0, 2.0), (4.0, 1.0))
  ]) == {'images_per_sec': 4.0, 'images_per_cpu_sec': 4.0}


def test_a_program_that_ends_is_an_error():
  with input_speed.program([sys.executable, '-c', '']) as gone:
    with pytest.raises((RuntimeError, BrokenPipeError)):
      gone.read(1)
  ends = 'input(); import sys; sys.exit(3)'
  with input_speed.program([sys.executable, '-c', ends]) as gone:
    with pytest.raises(RuntimeError, match='ended with status 3'):
      input_speed.interleave({'gone': gone}, batches=1, rounds=1)


CONFIG = """
from ml_collections import ConfigDict

def get_config():
  return ConfigDict({
      'total': {'steps': 1}, 'batch_size': 8,
      'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 8,
                'patch': 4},
      'data': {'source': 'digits', 'resolution': 8},
      'optimizer': {'name': 'sgd', 'learning_rate': 0.1,
                    'schedule': {'name': 'constant'}}})
"""


def test_the_input_of_a_config_is_measured(tmp_path, capsys):
  (tmp_path / 'config.py').write_text(CONFIG)
  command = ['benchmark', '--what=input', '--workers=0', '--rounds=1',
             f'--config={tmp_path}/config.py', '--batches=2',
             f'--json={tmp_path}/rows.json']
  assert main.main(command) == 0
  assert 'Input: digits' in capsys.readouterr().out
  (row,) = json.loads((tmp_path / 'rows.json').read_text())
  assert row['pipeline'] == 'ours' and row['images_per_cpu_sec'] > 0
  assert main.main([*command, '--compare=tf']) == 2
  assert '--compare requires' in capsys.readouterr().err
  assert main.main([*command, '--workers=1,two']) == 2
  assert '--workers must be' in capsys.readouterr().err


def test_prepared_input_is_measured_too(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(benchmark, 'NUM_PHOTOS', 2)
  monkeypatch.setattr(benchmark, 'NUM_LINKS', 2)
  assert main.main([
      'benchmark', '--what=input', '--rounds=1', '--batches=1',
      '--batch-size=2', '--prepared=64', f'--json={tmp_path}/rows.json']) == 0
  assert 'shorter side 64' in capsys.readouterr().out
  rows = json.loads((tmp_path / 'rows.json').read_text())
  assert [row['pipeline'] for row in rows] == ['ours', 'ours, prepared']
  assert all(row['images_per_cpu_sec'] > 0 for row in rows)


TINY = ('model.width=8', 'model.depth=1', 'model.num_heads=2',
        'model.mlp_dim=8')


@pytest.fixture(scope='module')
def step_figures(tmp_path_factory):
  """JSON of the step of a tiny model, without starts."""
  path = tmp_path_factory.mktemp('step') / 'figures.json'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(benchmark, 'NUM_PHOTOS', 2)
    patch.setattr(matmul_peak, 'SIZES', (64,))
    assert main.main([
        'benchmark', '--what=step', '--model=Ti/16', '--workers=0',
        '--config.data.resolution=16', '--rounds=2', '--batches=1',
        '--starts=0', f'--json={path}',
        *(f'--config.{words}' for words in TINY)]) == 0
  return json.loads(path.read_text())


def test_flops_are_those_of_the_experiment(step_figures):
  config = workload.config(
      'Ti/16', resolution=16, batch_size=8,
      source='imagenet2012', overrides=TINY)
  counted = experiment_lib.build(config, jax.devices(), expected_data=True)
  assert step_figures['train']['flops_per_image'] == (
      counted.training_flops_per_image)
  assert step_figures['inference']['flops_per_image'] == (
      counted.flops_per_image)


def test_rates_follow_from_times(step_figures):
  assert step_figures['devices'] == 8
  assert step_figures['peak']['flops_per_sec'] == pytest.approx(
      8 * 2 * 64**3 / step_figures['peak']['timing']['secs']['median'])
  for name in ('train', 'inference'):
    part = step_figures[name]
    secs = part['timing']['secs']
    assert 0 < secs['lowest'] <= secs['median'] <= secs['highest']
    assert part['images_per_sec'] == pytest.approx(8 / secs['median'])
    assert part['matmul_utilisation'] == pytest.approx(
        part['images_per_sec'] * part['flops_per_image']
        / step_figures['peak']['flops_per_sec'])
    assert part['datasheet_utilisation'] is None  # Unknown for CPUs.
  # Training also needs gradients and Adam's moments.
  assert step_figures['train']['needed_bytes'] > 2 * (
      step_figures['inference']['needed_bytes'])
  assert 0 <= step_figures['input']['wait_share']['median'] <= 1
  assert step_figures['startups'] is None


def test_a_start_measures_its_phases(tmp_path, capsys):
  config = workload.config(
      'Ti/16', resolution=16, batch_size=8,
      source='imagenet2012', overrides=TINY)
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(config_lib.to_plain(config)))
  startup_time.main(str(path), repr(time.time()))
  figures = json.loads(capsys.readouterr().out.splitlines()[-1])
  parts = ('import', 'build', 'compile', 'init', 'batch', 'step')
  assert figures['total_secs'] == pytest.approx(
      sum(figures[f'{name}_secs'] for name in parts))
  assert min(figures[f'{name}_secs'] for name in parts) > 0
  assert figures['host_bytes'] > 0


@pytest.mark.parametrize(('flags', 'words'), [
    ([], 'requires either --model'),
    (['--model=B/16', '--rounds=0'], '--rounds must be at least 1'),
    (['--model=B/16', '--prepared=64'], '--prepared requires --what=input'),
    (['--model=B/16', '--workers=1,2'], '--workers must be'),
])
def test_wrong_flags_are_errors(flags, words, capsys):
  assert main.main(['benchmark', '--what=step', *flags]) == 2
  assert words in capsys.readouterr().err


def test_actions_are_interleaved():
  done = []
  timed = interleaved_timing.interleave(
      {'a': lambda n: done.append(('a', n)),
       'b': lambda n: done.append(('b', n))}, rounds=2, repeats=3)
  assert done == [('a', 1), ('b', 1), *2 * [('a', 3), ('b', 3)]]
  assert timed['a'].repeats == 3 and timed['b'].rounds == 2
