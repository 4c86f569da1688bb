"""One run at a time in a workdir.

Two runs in one folder would sweep away what the other is writing, and mix their
rows. So the first process of a run holds WORKDIR/.lock.

On a disk that is a lock of the operating system (POSIX record locks, which
network drives know too): it ends with the process, however that ends, and so
never stands in the way of a restart. A bucket has no locks. There the holder
writes the file anew every few seconds, and who finds one watches it for a
while: one that changes belongs to a run that is alive.
"""

from collections.abc import Callable, Generator
import contextlib
import datetime
import errno
import json
import os
import socket
import threading
import time
from typing import Any
import uuid

from etils import epath

from vit_jax.checkpoints import storage

try:
  import fcntl
except ImportError:  # Windows.
  fcntl = None  # type: ignore[assignment]

FILENAME = '.lock'
BEAT_SECS = 15.0
# A holder that misses three beats is dead.
WATCH_SECS = 3 * BEAT_SECS
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
  with storage.explained('the workdir', workdir):
    workdir.mkdir(parents=True, exist_ok=True)
  if key in _held:
    raise ValueError(_in_use(workdir, _me()))
  with contextlib.ExitStack() as stack:
    if is_remote or fcntl is None:
      stack.enter_context(_beating(workdir / FILENAME))
    else:
      try:
        stack.enter_context(_locked(workdir / FILENAME))
      except _NoLocks:
        stack.enter_context(_beating(workdir / FILENAME))
    _held.add(key)
    stack.callback(_held.discard, key)
    yield


@contextlib.contextmanager
def _locked(path: epath.Path) -> Generator[None, None, None]:
  with storage.explained('the workdir', path.parent):
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
      raise ValueError(_in_use(
          path.parent, _parse(file.read().decode(errors='replace')))) from None
    # Held whatever is in it. Of a full disk the start sweeps half a checkpoint
    # away, if one is left from the last run, and may get on.
    with contextlib.suppress(OSError):
      file.truncate(0)
      file.write(json.dumps(_me()).encode())
    yield
    with contextlib.suppress(OSError):
      file.truncate(0)
    # Closing the file gives the lock back. It stays: to remove it would race
    # with whoever has just opened it.


@contextlib.contextmanager
def _beating(
    path: epath.Path, *, beat_secs: float = BEAT_SECS,
    watch_secs: float = WATCH_SECS, sleep: Callable[[float], None] = time.sleep,
) -> Generator[None, None, None]:
  """Holds a file by writing it again and again."""
  found = _read(path)
  if found and not _is_dead(_parse(found)):
    print(f'{path} says that process {_who(_parse(found))} is at work here. '
          f'Looks for {watch_secs:g} s whether it is.', flush=True)
    _watch(path, found, watch_secs, sleep)
  record = _me()
  count = 0

  def write() -> None:
    path.write_text(json.dumps({**record, 'count': count}))

  with storage.explained('the workdir', path.parent):
    write()
  sleep(min(1.0, beat_secs))  # Where two start at once, the later stays.
  if _parse(_read(path)).get('run') != record['run']:
    raise ValueError(_in_use(path.parent, _parse(_read(path))))
  closed = threading.Event()

  def beat() -> None:
    nonlocal count
    while not closed.wait(beat_secs):
      count += 1
      with contextlib.suppress(Exception):  # The next beat may succeed.
        write()

  thread = threading.Thread(target=beat, name='lock', daemon=True)
  thread.start()
  try:
    yield
  finally:
    closed.set()
    thread.join()
    with contextlib.suppress(Exception):
      path.unlink()


def _watch(
    path: epath.Path, found: str, watch_secs: float,
    sleep: Callable[[float], None],
) -> None:
  """Raises if the file changes."""
  for _ in range(10):
    sleep(watch_secs / 10)
    now = _read(path)
    if now and now != found:
      raise ValueError(_in_use(path.parent, _parse(now)))


def _me() -> dict[str, Any]:
  return {'host': socket.gethostname(), 'pid': os.getpid(),
          'since': datetime.datetime.now().isoformat(' ', 'seconds'),
          'run': uuid.uuid4().hex}


def _is_dead(record: dict[str, Any]) -> bool:
  """Whether the holder is a process of this host that is no more."""
  if record.get('host') != socket.gethostname():
    return False
  pid = record.get('pid')
  if pid == os.getpid():
    return True  # Of an earlier start with the same number, as in a container.
  try:
    os.kill(int(pid or 0), 0)
  except ProcessLookupError:
    return True
  except OSError:
    pass
  return False


def _read(path: epath.Path) -> str:
  try:
    return path.read_text()
  except FileNotFoundError:
    return ''


def _parse(text: str) -> dict[str, Any]:
  try:
    record = json.loads(text)
  except ValueError:  # Being written just now.
    return {}
  return record if isinstance(record, dict) else {}


def _who(record: dict[str, Any]) -> str:
  if not record:
    return 'of a run'
  return (f'{record.get("pid")} on {record.get("host")} '
          f'(since {record.get("since")})')


def _in_use(workdir: epath.Path, record: dict[str, Any]) -> str:
  return (f'Another run is at work in {workdir}: process {_who(record)}. Wait '
          'for its end, stop it (kill -TERM saves first), or use another '
          '--workdir.')
