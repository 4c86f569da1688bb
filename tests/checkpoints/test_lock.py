"""A workdir has one run at a time, and a dead one stands in nobody's way."""

import errno
import os
import pathlib
import signal
import socket
import subprocess
import sys

from etils import epath
import pytest

from vit_jax.checkpoints import errors
from vit_jax.checkpoints import lock

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
    with pytest.raises(errors.StorageError, match=(
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
  with (pytest.raises(errors.StorageError, match=words),
        lock.hold(tmp_path / 'run')):
    pass


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='Linux has it')
def test_a_lock_on_a_full_disk_is_held_and_given_back():
  with lock._locked(epath.Path('/dev/full')):
    pass  # Nothing could be written, now or on closing.
