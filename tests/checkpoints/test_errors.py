"""Storage errors keep the system's message; a workdir has one run at a time."""

import errno
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
from unittest import mock

from etils import epath
import fsspec
import pytest

from tests import random_models
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items
from vit_jax.checkpoints import lock
from vit_jax.weights import download

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail(error, folder='/proc', **options):
  with errors.explain_errors('the checkpoint of step 3', folder, **options):
    raise error


def test_a_full_disk_reports_message_path_sizes_and_last_checkpoint():
  with pytest.raises(errors.StorageError) as caught:
    fail(FULL)
  assert str(caught.value) == (
      'Cannot write the checkpoint of step 3 to /proc: No space left on device.'
      ' Check free space (0 Bytes free), inodes, quota and '
      'permissions, or use another --workdir. Then the same command resumes '
      'from the last checkpoint.')
  assert caught.value.__cause__ is FULL


def in_background(error):
  try:
    raise RuntimeError('in the background') from error
  except RuntimeError as outer:
    return outer


@pytest.mark.parametrize(('error', 'folder', 'message'), [
    (in_background(PermissionError(errno.EACCES, 'denied')), '/proc',
     'denied. Check'),
    # As TensorStore reports it.
    (ValueError('RESOURCE_EXHAUSTED: Error writing "a/b": [OS error 28: ENOSPC '
                'No space left on device]'), '/proc', 'No space left on'),
    (OSError('Forbidden: 403'), 'gs://b/run',
     '^Cannot write .* to gs://b/run: Forbidden: 403.*gcloud auth')])
def test_a_failed_save_reports_the_original_message(error, folder, message):
  with pytest.raises(errors.StorageError, match=message):
    fail(error, folder, kind=Exception)


def test_other_errors_pass_unchanged():
  with pytest.raises(ValueError, match='^loss$'):
    fail(ValueError('loss'))


class Refusing:
  """A file system that refuses every operation."""

  def __getattr__(self, name):
    def refuse(*_, **__):
      raise OSError('Forbidden: storage.objects.create')
    return refuse


def test_lock_download_and_restore_report_a_bucket_that_denies_access(
    monkeypatch):
  # epath caches the file system; no other test here uses s3.
  monkeypatch.setattr(fsspec, 'filesystem', lambda *_, **__: Refusing())
  with pytest.raises(errors.StorageError, match=(
      'Cannot write the workdir to s3://b/run: Forbidden')):
    with lock.hold('s3://b/run'):
      pass
  with pytest.raises(OSError, match='s3://b/run could not be .*Forbidden'):
    download.fetch('s3://b/run')
  with pytest.raises(OSError, match='^Forbidden'):
    with items.explain_errors(epath.Path('s3://b/run/4')):
      (epath.Path('s3://b/run/4') / 'config').read_text()


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
  monkeypatch.setattr('builtins.open', mock.Mock(
      side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
  with (pytest.raises(errors.StorageError, match='Read-only file system'),
        lock.hold(tmp_path / 'run')):
    pass


def test_a_file_system_without_locks_is_used_without_one(tmp_path, monkeypatch):
  flock = mock.Mock(side_effect=OSError(errno.ENOLCK, 'No locks available'))
  monkeypatch.setattr(lock.fcntl, 'flock', flock)
  with lock.hold(tmp_path), lock.hold(tmp_path):
    assert flock.call_count == 2


@pytest.mark.parametrize('name', ['runs [old]/x', 'a\\b'])
@pytest.mark.parametrize('write', [
    lambda path: lock.hold(path).__enter__(),
    lambda path: random_models.make_tiny().save(path)])
def test_names_that_orbax_takes_for_patterns_are_refused(
    tmp_path, write, name):
  with pytest.raises(ValueError, match=(
      f'{re.escape(str(tmp_path / name))}: the library .* for a pattern')):
    write(tmp_path / name)
  assert not list(tmp_path.iterdir())
