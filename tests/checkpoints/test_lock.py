"""A workdir has one run at a time, and a dead one stands in nobody's way."""

import errno
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

from etils import epath
import pytest

from vit_jax.checkpoints import lock
from vit_jax.checkpoints import storage

ROOT = pathlib.Path(__file__).parents[2]
HOLD = """
import sys
from vit_jax.checkpoints import lock
with lock.hold(sys.argv[1]):
  print('held', flush=True)
  sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
  """Another process that holds a workdir until it is killed or told to end."""
  process = subprocess.Popen(
      [sys.executable, '-c', HOLD, str(tmp_path)], cwd=ROOT, text=True,
      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
  assert process.stdout.readline() == 'held\n'
  yield process
  process.kill()
  process.communicate()


def test_another_run_is_named_and_gone_when_it_is_killed(other, tmp_path):
  with pytest.raises(ValueError) as caught, lock.hold(tmp_path):
    pass
  assert str(caught.value).startswith(
      f'Another run is at work in {tmp_path}: process {other.pid} on '
      f'{socket.gethostname()} (since ')
  assert str(caught.value).endswith(
      'Wait for its end, stop it (kill -TERM saves first), or use another '
      '--workdir.')
  other.send_signal(signal.SIGKILL)
  other.wait()
  with lock.hold(tmp_path):
    pass


def test_one_process_holds_a_workdir_once_at_a_time(tmp_path):
  with (lock.hold(tmp_path / 'run'), pytest.raises(ValueError, match=str(
      os.getpid())), lock.hold(tmp_path / 'other/../run')):
    pass
  with lock.hold(tmp_path / 'run'):
    pass


def test_a_file_in_place_of_the_workdir_is_said(tmp_path):
  (tmp_path / 'file').write_text('')
  for path in (tmp_path / 'file', tmp_path / 'file/run'):
    with pytest.raises(storage.StorageError, match=(
        f'The workdir could not be written to {path}: a file is where a folder '
        'should be. Move the file away, or use another --workdir')):
      with lock.hold(path):
        pass


@pytest.mark.parametrize('code, words', [
    (errno.EACCES, 'this user may not write there'),
    (errno.EROFS, 'the file system is read-only')])
def test_a_workdir_that_cannot_be_written_is_said(
    tmp_path, monkeypatch, code, words):
  # Not by permissions, which do not bind a test that root runs.
  def refuse(path, *_):
    raise OSError(code, os.strerror(code), path)

  monkeypatch.setattr(os, 'open', refuse)
  with (pytest.raises(storage.StorageError, match=words),
        lock.hold(tmp_path / 'run')):
    pass


# ------------------------------------------------------- where there are none


def beating(path, *, sleep=lambda secs: None):
  return lock._beating(
      epath.Path(path), beat_secs=60, watch_secs=30, sleep=sleep)


def test_a_file_that_changes_belongs_to_a_run_that_is_alive(tmp_path):
  file = tmp_path / '.lock'
  record = {'host': 'elsewhere', 'pid': 7, 'since': 'now', 'count': 0}
  file.write_text(json.dumps(record))

  def other_beats(secs):
    record['count'] += 1
    file.write_text(json.dumps(record))

  with (pytest.raises(ValueError, match='process 7 on elsewhere'),
        beating(file, sleep=other_beats)):
    pass
  assert json.loads(file.read_text())['host'] == 'elsewhere'


def test_a_file_that_does_not_change_is_of_a_dead_run(tmp_path, capsys):
  file = tmp_path / '.lock'
  file.write_text(json.dumps({'host': 'elsewhere', 'pid': 7, 'since': 'then'}))
  waited = []
  with beating(file, sleep=waited.append):
    assert json.loads(file.read_text())['pid'] == os.getpid()
  assert sum(waited) == pytest.approx(31)
  assert 'process 7 on elsewhere (since then) is at work' in (
      capsys.readouterr().out)
  assert not file.exists()


def test_a_dead_process_of_this_host_is_not_waited_for(tmp_path):
  file = tmp_path / '.lock'
  dead = subprocess.Popen([sys.executable, '-c', ''])
  dead.wait()
  file.write_text(json.dumps({'host': socket.gethostname(), 'pid': dead.pid}))
  waited = []
  with beating(file, sleep=waited.append):
    pass
  assert sum(waited) == 1


def test_of_two_that_start_at_once_one_stays(tmp_path):
  file = tmp_path / '.lock'

  def other_writes(secs):
    file.write_text(json.dumps({'host': 'elsewhere', 'pid': 7, 'run': 'x'}))

  with (pytest.raises(ValueError, match='process 7 on elsewhere'),
        beating(file, sleep=other_writes)):
    pass


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='Linux has it')
def test_a_lock_on_a_full_disk_is_held_and_given_back():
  with lock._locked(epath.Path('/dev/full')):
    pass  # Nothing could be written, now or on closing.
