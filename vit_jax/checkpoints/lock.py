"""Allows one run at a time in a workdir on a local or network drive.

Two runs in one workdir would delete each other's checkpoints and mix their
metrics. The operating system releases the lock when the process ends in any
way, so a killed run never blocks a restart. Buckets and file systems without
locks are not protected.
"""

from collections.abc import Generator
import contextlib
import fcntl
import os
import socket
import time

from etils import epath

from vit_jax import atomic_files
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import paths

FILENAME = '.lock'


@contextlib.contextmanager
def hold(workdir: epath.PathLike) -> Generator[None, None, None]:
  """Creates a workdir and locks it while the context is active.

  Raises:
    ValueError: if another run holds the lock, with its process and host, or
      if checkpoints cannot be written to the workdir.
    errors.StorageError: if the workdir cannot be written to.
  """
  workdir = epath.Path(workdir).expanduser()
  paths.check_writable(workdir)
  with contextlib.ExitStack() as stack:
    with errors.explain_errors('the workdir', workdir):
      workdir.mkdir(parents=True, exist_ok=True)
      if not atomic_files.is_remote(workdir):
        # Unbuffered, as a write to a full disk must not be repeated on closing.
        _lock(stack.enter_context(open(
            workdir / FILENAME, 'ab+', buffering=0)), workdir)
    yield


def _lock(file, workdir: epath.Path) -> None:
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except (BlockingIOError, PermissionError):
    file.seek(0)
    owner = file.read().decode(errors='replace') or 'unknown'
    raise ValueError(
        f'Another run is active in {workdir}: {owner}. Wait for it to end, '
        'stop it (kill -TERM saves first), or use another '
        '--workdir.') from None
  except OSError:  # This file system has no locks.
    return
  with contextlib.suppress(OSError):  # Only the error above needs the owner.
    file.truncate(0)
    file.write(f'process {os.getpid()} on {socket.gethostname()} '
               f'(since {time.ctime()})'.encode())
