"""One run at a time in a workdir.

Two runs in one folder would sweep away what the other is writing, and mix their
rows. So the first process of a run holds WORKDIR/.lock.

On a disk that is a lock of the operating system (POSIX record locks, which
network drives know too): it ends with the process, however that ends, and so
never stands in the way of a restart. A bucket has no locks: see `bucket_lock`.
"""

from collections.abc import Generator
import contextlib
import errno
import json
import os

from etils import epath

from vit_jax.checkpoints import bucket_lock
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import holder

try:
  import fcntl
except ImportError:  # Windows.
  fcntl = None  # type: ignore[assignment]

FILENAME = '.lock'
# File systems without locks say one of these.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_held: set[str] = set()  # The system does not guard a process from itself.


class _NoLocks(Exception):
  """The file system has no locks."""


@contextlib.contextmanager
def hold(workdir: epath.PathLike) -> Generator[None, None, None]:
  """Makes a workdir, and holds it for this process while the context lasts.

  Raises:
    ValueError: if another run holds it, with its process and host.
    storage.StorageError: if it cannot be written to.
  """
  workdir = epath.Path(workdir).expanduser()
  key = os.fspath(workdir)
  is_remote = '://' in key
  key = key if is_remote else os.path.realpath(key)
  with errors.explained('the workdir', workdir):
    workdir.mkdir(parents=True, exist_ok=True)
  if key in _held:
    raise ValueError(holder.in_use(workdir, holder.me()))
  with contextlib.ExitStack() as stack:
    if is_remote or fcntl is None:
      stack.enter_context(bucket_lock.hold(workdir / FILENAME))
    else:
      try:
        stack.enter_context(_locked(workdir / FILENAME))
      except _NoLocks:
        stack.enter_context(bucket_lock.hold(workdir / FILENAME))
    _held.add(key)
    stack.callback(_held.discard, key)
    yield


@contextlib.contextmanager
def _locked(path: epath.Path) -> Generator[None, None, None]:
  with errors.explained('the workdir', path.parent):
    # Not for long-lived children: record locks are not inherited by a fork.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
  # Unbuffered: what a full disk refuses must not be tried again on closing.
  with open(descriptor, 'rb+', buffering=0) as file:
    try:
      fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      if error.errno in _WITHOUT_LOCKS:
        raise _NoLocks from error
      if error.errno not in (errno.EACCES, errno.EAGAIN):
        raise
      raise ValueError(holder.in_use(path.parent, holder.parse(
          file.read().decode(errors='replace')))) from None
    # Held whatever is in it. Of a full disk the start sweeps half a checkpoint
    # away, if one is left from the last run, and may get on.
    with contextlib.suppress(OSError):
      file.truncate(0)
      file.write(json.dumps(holder.me()).encode())
    yield
    with contextlib.suppress(OSError):
      file.truncate(0)
    # Closing the file gives the lock back. It stays: to remove it would race
    # with whoever has just opened it.
