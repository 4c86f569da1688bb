"""One failing measurement does not lose the others."""

import json
import time

import compare
import gpu
import psutil
import pytest

PROGRAM = """
import json, pathlib, sys, time
name, setting = sys.argv[1], json.loads(sys.argv[2])
starts = pathlib.Path(__file__).parent / 'starts'
before = starts.read_text() if starts.exists() else ''
starts.write_text(f'{before}{name} ')
if name == 'timm':
  import timm_is_missing
if name == 'plain-flax' and name not in before:
  sys.exit('RESOURCE_EXHAUSTED: Out of memory\\nwhile trying to allocate')
for line in sys.stdin:
  if name == 'timm-compiled':
    time.sleep(60)
  time.sleep(int(line) / 100)
  print(json.dumps({'images': int(line) * setting['batch_size']}
                   if int(line) else {'flops_per_image': 10**9}), flush=True)
"""
FLAGS = ['--models=Ti/16', '--batch-sizes=2', '--rounds=1',
         '--round-secs=0.02', '--limit-secs=2']


@pytest.fixture
def program(tmp_path, monkeypatch):
  path = tmp_path / 'program.py'
  path.write_text(PROGRAM)
  monkeypatch.setattr(compare, 'PROGRAM', path)
  return path


def rows(path):
  return {row['name']: row
          for row in json.loads(path.read_text())['rows']}


def test_failures_are_reported_and_repeated(program, tmp_path, capsys):
  json_path = tmp_path / 'gpu.json'
  flags = [*FLAGS, f'--json={json_path}', '--jobs=3']
  assert gpu.main([*flags, '--only=train .*(10|plain|timm|led|flax)$']) == 0
  found = rows(json_path)
  assert 0 < found[gpu.PLAIN]['images_per_sec'] <= 200
  # It ran out of memory next to others, and was repeated alone.
  assert found['plain-flax']['images_per_sec'] > 0
  assert {name: row['error'] for name, row in found.items()
          if 'error' in row} == {
              'timm': "ModuleNotFoundError: No module named 'timm_is_missing'",
              'timm-compiled': found['timm-compiled']['error'],
              'cifar10': 'not measured: needs --cifar10=DIR'}
  assert 'stopped after' in found['timm-compiled']['error']
  assert 'timm, batch 2: ModuleNotFoundError' in capsys.readouterr().out
  (program.parent / 'starts').unlink()
  assert gpu.main([*flags, '--only=train .* (plain|timm)$']) == 0
  assert (program.parent / 'starts').read_text() == 'timm '


@pytest.mark.usefixtures('program')
def test_the_table_is_printed_when_no_time_is_left(tmp_path, capsys):
  json_path = tmp_path / 'gpu.json'
  assert gpu.main([*FLAGS, f'--json={json_path}', '--minutes=0']) == 0
  assert {row['error'] for row in rows(json_path).values()} == {
      'not measured: no time left'}
  assert 'inference, Ti/16' in capsys.readouterr().out


def wait_until(condition):
  for _ in range(1000):
    if condition():
      return
    time.sleep(0.01)
  pytest.fail('The condition did not become true in 10 seconds.')


def test_other_processes_are_stopped_while_one_is_timed():
  machine = gpu.Machine(time.monotonic() + 60)
  command = ['sleep', '60']
  options = {'log': None, 'limit_secs': 60}
  with machine.start(command, **options) as timed:
    with machine.start(command, **options) as other:
      def is_stopped(process):
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED

      with machine.others_stopped(timed):
        wait_until(lambda: is_stopped(other))
        assert not is_stopped(timed)
      wait_until(lambda: not is_stopped(other))
  assert timed.returncode == other.returncode == -9


@pytest.mark.large
@pytest.mark.slow  # It compiles three programs and writes photos.
def test_all_kinds_of_measurements_run(tmp_path):
  json_path = tmp_path / 'gpu.json'
  assert gpu.main([
      '--models=Ti/16', '--batch-sizes=2', '--resolution=16', '--rounds=1',
      '--round-secs=0.01', '--jobs=1', f'--json={json_path}',
      '--set=model.depth=1', '--only=train.*(matmul|input|unroll=12$)']) == 0
  found = rows(json_path)
  assert {name: row.get('error') for name, row in found.items()} == (
      dict.fromkeys(found))
  assert len(found) == 4
