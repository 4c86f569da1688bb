"""Processes share results and errors of process 0 and stop at the same call."""

import json
import pathlib
import subprocess
import sys

import jax
import pytest

from tests import toy
from vit_jax.checkpoints import errors
from vit_jax.parallel import coordination

ROOT = str(pathlib.Path(__file__).parents[2])
PROGRAM = """
import json, os, signal, sys, time
root, address, index = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path.insert(0, root)
from vit_jax.parallel import coordination
from vit_jax.parallel import processes
from vit_jax.run import signals
assert processes.start(address, 2, index, stoppable=True) == (index == 0)
coordination.START_SECS = coordination.ERROR_SECS = 2
coordination.EXIT_SECS = 0
found = {'first': [
    coordination.run_on_first('n', lambda i=i: [i, index]) for i in (3, 4)]}

def fail():
  raise ValueError('from process 0')
try:
  coordination.run_on_first('fail', fail)
except ValueError as error:
  found['error'] = str(error)
coordination.check_equal('same', {'a': [1, 2]})
try:
  coordination.check_equal('different', {'a': 1, 'seed': index})
except ValueError as error:
  found['different'] = str(error)
coordination.barrier('all')
with signals.catch() as stop:
  try:
    for call in range(1, 1000):
      if call == 10 and index == 1:
        os.kill(os.getpid(), signal.SIGTERM)
      stop.check()
      time.sleep(0.02)
  except signals.Stopped as stopped:
    found['stopped'] = [call, stopped.exit_code]
if index == 0:
  try:
    coordination.barrier('absent')
  except coordination.LostError as error:
    found['absent'] = str(error)
else:
  time.sleep(4)
print(json.dumps(found), flush=True)
"""


def test_two_processes_share_results_errors_and_stops():
  address = f'localhost:{toy.free_port()}'
  processes = [subprocess.Popen(
      [sys.executable, '-c', PROGRAM, ROOT, address, str(index)], text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for index in range(2)]
  outputs = [process.communicate(timeout=120) for process in processes]
  found = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
  for one in found:
    assert one['first'] == [[3, 0], [4, 0]]
    assert one['error'] == 'from process 0'
    assert one['different'].startswith(
        'Processes of one run differ in seed: process 0 has 0, process 1 has 1')
  # Only process 1 received the signal.
  assert found[0]['stopped'] == found[1]['stopped']
  call, exit_code = found[0]['stopped']
  assert call > 10 and exit_code == 75
  assert "not all processes reached 'absent' within 2 s" in found[0]['absent']


GLOO = 'Gloo AllGather failed: [pair.cc:538] Connection reset by peer'


def barrier_timeout():
  """Returns the error of Orbax for a barrier that a lost process missed."""
  try:
    raise TimeoutError('Timed out while waiting for a barrier') from (
        jax.errors.JaxRuntimeError('UNAVAILABLE: Barrier failed'))
  except TimeoutError as error:
    return error


@pytest.mark.parametrize('error', [
    jax.errors.JaxRuntimeError('Gloo: connection closed by peer'),
    ValueError(f'UNKNOWN: {GLOO}'), barrier_timeout()])
def test_a_process_lost_in_a_step_or_a_save_is_a_lost_error(error, monkeypatch):
  with pytest.raises(type(error)):  # Of a single process.
    with coordination.explain_lost_processes():
      raise error
  monkeypatch.setattr(coordination, 'is_distributed', lambda: True)
  with pytest.raises(coordination.LostError, match='resumes from the last'):
    with coordination.explain_lost_processes():
      raise error
  with pytest.raises(coordination.LostError, match='resumes from the last'):
    with errors.explain_errors('a checkpoint', '/proc'):  # Of the manager.
      with errors.explain_errors('the checkpoint of step 3', '/proc'):
        raise error


def test_an_unavailable_data_server_is_not_a_lost_process(monkeypatch):
  monkeypatch.setattr(coordination, 'is_distributed', lambda: True)
  for error in (
      ValueError(f'{GLOO} is no dataset'), OSError('503 Service Unavailable'),
      ValueError("NOT_FOUND: 'Gloo' is no file")):
    with pytest.raises(type(error), match='Gloo|503'):
      with coordination.explain_lost_processes():
        raise error
  with pytest.raises(errors.StorageError):
    with coordination.explain_lost_processes():
      with errors.explain_errors('the checkpoint of step 3', 'gs://b/run'):
        raise OSError('Cannot connect to host b: connection refused')


def test_a_single_process_runs_the_function_itself():
  assert coordination.run_on_first('x', lambda: 7) == 7
  coordination.barrier('x')
  assert not coordination.reached_stop_point()
