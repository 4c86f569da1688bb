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
import numpy as np
import pytest

from tests import random_models
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items
from vit_jax.checkpoints import lock
from vit_jax.weights import download


def fail(error, folder='/proc', **options):
  with errors.explain_errors('the checkpoint of step 3', folder, **options):
    raise error


def fail_in_background():
  try:
    raise RuntimeError('in the background') from PermissionError(
        errno.EACCES, 'denied')
  except RuntimeError as outer:
    fail(outer, kind=Exception)


class Refusing:
  """A file system that refuses every operation."""

  def __getattr__(self, name):
    def refuse(*_, **__):
      raise OSError('Forbidden: storage.objects.create')
    return refuse


def acquire(path):
  with lock.hold(path):
    pass


def acquire_read_only(root):
  # Permissions do not apply to a test that runs as root.
  with mock.patch('builtins.open', side_effect=OSError(errno.EROFS, os.strerror(
      errno.EROFS))):
    acquire(root)


def read_from_a_bucket(_):
  with items.explain_errors(epath.Path('s3://b/run/4')):
    (epath.Path('s3://b/run/4') / 'config').read_text()


@pytest.mark.parametrize(('kind', 'call', 'message'), [
    *((errors.StorageError, call, message) for call, message in (
        (lambda _: fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
         '^Cannot write the checkpoint of step 3 to /proc: No space left on '
         r'device. Check free space \(0 Bytes free\), inodes, quota and '
         'permissions, or use another --workdir. Then the same command resumes '
         'from the last checkpoint.$'),
        (lambda _: fail_in_background(), 'denied. Check'),
        # As TensorStore reports it.
        (lambda _: fail(ValueError(
            'RESOURCE_EXHAUSTED: Error writing "a/b": [OS error 28: ENOSPC No '
            'space left on device]'), kind=Exception), 'No space left on'),
        (lambda _: fail(OSError('Forbidden: 403'), 'gs://b/run'),
         '^Cannot write .* to gs://b/run: Forbidden: 403.*gcloud auth'),
        (lambda _: acquire('s3://b/run'),
         'Cannot write the workdir to s3://b/run: Forbidden'),
        (lambda root: acquire(root / 'file'),
         r'Cannot write the workdir to \S+/file: File exists'),
        (lambda root: acquire(root / 'file/run'),
         r'Cannot write the workdir to \S+/file/run: Not a directory'),
        (acquire_read_only, 'Read-only file system'))),
    # Other errors pass unchanged.
    (ValueError, lambda _: fail(ValueError('loss')), '^loss$'),
    (OSError, lambda _: download.fetch('s3://b/run'),
     's3://b/run could not be .*Forbidden'),
    (OSError, read_from_a_bucket, '^Forbidden'),
    # The library takes these names for patterns.
    *((ValueError, lambda root, name=name, write=write: write(root / name),
       f'/{re.escape(name)}: the library .* for a pattern')
      for name in ('runs [old]/x', 'a\\b') for write in (
          acquire, lambda path: random_models.make_tiny().save(path))),
    (ValueError, lambda _: checksums.check(
        {'params': checksums.of_arrays({'bias': np.ones(2), 'x': np.ones(3)})},
        {'params': {'bias': np.zeros(2), 'x': np.ones(3)}}),
     'checksum of params differs for bias')])
def test_an_error_names_its_cause(tmp_path, monkeypatch, kind, call, message):
  # epath caches the file system; no other test here uses s3.
  monkeypatch.setattr(fsspec, 'filesystem', lambda *_, **__: Refusing())
  (tmp_path / 'file').write_text('')
  with pytest.raises(kind, match=message) as caught:
    call(tmp_path)
  assert caught.value.__cause__ or kind is not errors.StorageError
  assert [path.name for path in tmp_path.iterdir()] == ['file']


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


def test_a_file_system_without_locks_is_used_without_one(tmp_path, monkeypatch):
  flock = mock.Mock(side_effect=OSError(errno.ENOLCK, 'No locks available'))
  monkeypatch.setattr(lock.fcntl, 'flock', flock)
  with lock.hold(tmp_path), lock.hold(tmp_path):
    assert flock.call_count == 2
