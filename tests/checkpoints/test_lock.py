"""A workdir has one run at a time, and a killed run does not block it."""

import errno
import os
import pathlib
import signal
import socket
import subprocess
import sys

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


def test_the_error_names_the_other_run_and_a_killed_run_leaves_no_lock(
    tmp_path):
  other = subprocess.Popen(
      [sys.executable, '-c', HOLD, str(tmp_path)], cwd=ROOT, text=True,
      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
  try:
    assert other.stdout.readline() == 'held\n'
    with pytest.raises(ValueError) as caught, lock.hold(tmp_path):
      pass
    assert str(caught.value).startswith(
        f'Another run is active in {tmp_path}: process {other.pid} on '
        f'{socket.gethostname()} (since ')
    assert 'kill -TERM saves first' in str(caught.value)
  finally:
    other.send_signal(signal.SIGKILL)
    other.communicate()
  with lock.hold(tmp_path):
    pass


def test_a_workdir_that_cannot_be_created_is_a_storage_error(
    tmp_path, monkeypatch):
  (tmp_path / 'file').write_text('')
  for path in (tmp_path / 'file', tmp_path / 'file/run'):
    with pytest.raises(errors.StorageError, match=(
        f'Cannot write the workdir to {path}: (File exists|Not a directory)')):
      with lock.hold(path):
        pass

  # Permissions do not apply to a test that runs as root.
  def refuse(path, *_, **__):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

  monkeypatch.setattr('builtins.open', refuse)
  with (pytest.raises(errors.StorageError, match='Read-only file system'),
        lock.hold(tmp_path / 'run')):
    pass


def test_a_file_system_without_locks_is_used_without_one(tmp_path, monkeypatch):
  def refuse(*_):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(lock.fcntl, 'flock', refuse)
  with lock.hold(tmp_path), lock.hold(tmp_path):
    pass
