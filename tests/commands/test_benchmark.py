"""Readers and steps take turns, and what is counted is their own."""

import json
import sys
import time

import jax
import psutil
import pytest

import main
from vit_jax.benchmarking import interleaved_timing
from vit_jax.benchmarking import matmul_peak
from vit_jax.benchmarking import reading
from vit_jax.benchmarking import start
from vit_jax.benchmarking import workload
from vit_jax.commands import benchmark
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

READER = """
import json, sys
for line in sys.stdin:
  sum(range(300_000))
  print(json.dumps({'images': 3 * int(line)}), flush=True)
"""


def test_readers_take_turns_halted_meanwhile_and_are_counted_apart():
  others = []

  def idle(count):
    (process,), end = other.processes, time.monotonic() + 10
    # On a busy machine a signal takes a moment.
    while (process.status() != psutil.STATUS_STOPPED
           and time.monotonic() < end):
      time.sleep(0.01)
    others.append(process.status())
    return count

  with reading.program([sys.executable, '-c', READER]) as other:
    speeds = reading.alternate(
        {'other': other, 'idle': reading.Reader(idle, [], True)}, batches=4,
        turns=2)
    assert other.make(1) == 3  # Goes on afterwards.
  assert others == [psutil.STATUS_STOPPED] * 3
  assert [s.images for s in speeds['other']] == [12, 12]
  assert [s.images for s in speeds['idle']] == [4, 4]


def test_what_was_ready_before_is_in_no_turn():
  ready = [7]

  def make(count):
    taken = min(count, ready[0])
    ready[0] -= taken
    time.sleep(0.02 * (count - taken))
    return count

  speeds = reading.alternate(
      {'ahead': reading.Reader(make, [], True)}, batches=1, turns=1, ready=7)
  assert [s.secs >= 0.02 for s in speeds['ahead']] == [True]


def test_the_median_is_of_turns():
  (row,) = reading.medians({'a': [
      reading.Speed(8, 2.0, 4.0), reading.Speed(8, 1.0, 2.0),
      reading.Speed(8, 4.0, 1.0)]})
  assert (row.images_per_sec, row.images_per_core_sec) == (4.0, 4.0)


def test_a_reader_that_ends_is_an_error():
  with reading.program([sys.executable, '-c', '']) as gone:
    with pytest.raises((RuntimeError, BrokenPipeError)):
      gone.make(1)
  ends = 'input(); import sys; sys.exit(3)'
  with reading.program([sys.executable, '-c', ends]) as gone:
    with pytest.raises(RuntimeError, match='ended, with 3'):
      reading.alternate({'gone': gone}, batches=1, turns=1)


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
  command = ['benchmark', '--what=input', '--workers=0', '--turns=1',
             f'--config={tmp_path}/config.py', '--batches=2',
             f'--json={tmp_path}/rows.json']
  assert main.main(command) == 0
  assert 'Input: digits' in capsys.readouterr().out
  (row,) = json.loads((tmp_path / 'rows.json').read_text())
  assert row['reader'] == 'ours' and row['images_per_core_sec'] > 0
  assert main.main([*command, '--rival=tf']) == 2
  assert 'Leave out --config' in capsys.readouterr().err
  assert main.main([*command, '--workers=1,two']) == 2
  assert '--workers is' in capsys.readouterr().err


def test_the_input_is_measured_as_prepared_as_well(
    tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(benchmark, 'COUNT', 2)
  monkeypatch.setattr(benchmark, 'NAMES', 2)
  command = ['benchmark', '--what=input', '--turns=1', '--batches=1',
             '--batch-size=2', '--prepared=64', f'--json={tmp_path}/rows.json']
  assert main.main(command) == 0
  assert 'prepared: 64 the shorter side' in capsys.readouterr().out
  rows = json.loads((tmp_path / 'rows.json').read_text())
  assert [row['reader'] for row in rows] == ['ours', 'ours, prepared']
  assert all(row['images_per_core_sec'] > 0 for row in rows)
  assert main.main([*command, '--workers=0']) == 2
  assert '--workers of 1 or more' in capsys.readouterr().err


TINY = ('model.width=8', 'model.depth=1', 'model.num_heads=2',
        'model.mlp_dim=8')


@pytest.fixture(scope='module')
def step_figures(tmp_path_factory):
  """The step of the smallest model, as JSON; without fresh processes."""
  path = tmp_path_factory.mktemp('step') / 'figures.json'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(benchmark, 'COUNT', 2)
    patch.setattr(matmul_peak, 'SIZES', (64,))
    assert main.main([
        'benchmark', '--what=step', '--model=Ti/16', '--resolution=16',
        '--workers=0', '--turns=2', '--batches=1', '--starts=0',
        *(f'--config.{words}' for words in TINY), f'--json={path}']) == 0
  return json.loads(path.read_text())


def test_the_operations_of_a_step_are_those_of_the_accounting(step_figures):
  config = workload.config(
      'Ti/16', resolution=16, batch_size=8, dtype='float32',
      source='imagenet2012', overrides=TINY)
  counted = experiment_lib.build(config, jax.devices(), expected_data=True)
  assert step_figures['train']['flops_per_image'] == (
      counted.training_flops_per_image)
  assert step_figures['inference']['flops_per_image'] == (
      counted.flops_per_image)


def test_rates_follow_from_seconds(step_figures):
  assert step_figures['devices'] == 8
  assert step_figures['peak']['flops_per_sec'] == pytest.approx(
      8 * 2 * 64**3 / step_figures['peak']['timed']['secs']['median'])
  for name in ('train', 'inference'):
    part = step_figures[name]
    secs = part['timed']['secs']
    assert 0 < secs['lowest'] <= secs['median'] <= secs['highest']
    assert part['images_per_sec'] == pytest.approx(8 / secs['median'])
    assert part['utilisation'] == pytest.approx(
        part['images_per_sec'] * part['flops_per_image']
        / step_figures['peak']['flops_per_sec'])
    assert part['datasheet_utilisation'] is None  # Of a CPU nothing is known.
  # A training also holds gradients and Adam's moments.
  assert step_figures['train']['needed_bytes'] > 2 * (
      step_figures['inference']['needed_bytes'])
  assert 0 <= step_figures['input']['wait_share']['median'] <= 1
  assert step_figures['starts'] is None


def test_a_start_says_what_each_part_took(tmp_path, capsys):
  config = workload.config(
      'Ti/16', resolution=16, batch_size=8, dtype='float32',
      source='imagenet2012', overrides=TINY)
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(config_lib.to_plain(config)))
  start.main(str(path), repr(time.time()))
  figures = json.loads(capsys.readouterr().out.splitlines()[-1])
  parts = ('import', 'build', 'compile', 'state', 'batch', 'step')
  assert figures['total_secs'] == pytest.approx(
      sum(figures[f'{name}_secs'] for name in parts))
  assert min(figures[f'{name}_secs'] for name in parts) > 0
  assert figures['host_bytes'] > 0


def test_a_step_is_of_a_model_or_of_a_config(capsys):
  assert main.main(['benchmark', '--what=step']) == 2
  assert 'Name one of the two' in capsys.readouterr().err
  assert main.main(
      ['benchmark', '--what=step', '--model=B/16', '--turns=0']) == 2
  assert '--turns must be at least 1' in capsys.readouterr().err


def test_actions_take_turns():
  done = []
  timed = interleaved_timing.alternate(
      {'a': lambda n: done.append(('a', n)),
       'b': lambda n: done.append(('b', n))}, turns=2, repeats=3)
  assert done == [('a', 1), ('b', 1), *2 * [('a', 3), ('b', 3)]]
  assert timed['a'].repeats == 3 and timed['b'].turns == 2


def test_a_flag_of_another_measurement_is_an_error(capsys):
  assert main.main(['benchmark', '--what=step', '--model=Ti/16',
                    '--prepared=64']) == 2
  assert '--prepared is of --what=input' in capsys.readouterr().err
