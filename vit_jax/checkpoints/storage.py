"""What to do when the workdir cannot be written to.

Each library says it in its own words: Python by an errno, TensorStore by the
text of an error of its own, Orbax by a chain of both from a thread of its own.
"""

from collections.abc import Callable, Generator
import contextlib
import errno
import os
import shutil

from etils import epath
import humanize

# What the system says, and what a person can do about it.
_FULL = 'Make room there'
_REASONS = {
    errno.ENOSPC: ('the disk is full', _FULL),
    errno.EDQUOT: ('the quota of disk space is used up', _FULL),
    errno.EFBIG: ('the file is larger than is allowed there (ulimit -f)',
                  'Raise the limit'),
    errno.EROFS: ('the file system is read-only', 'Mount it for writing'),
    errno.EACCES: ('this user may not write there', 'Change who may'),
    errno.EPERM: ('this user may not write there', 'Change who may'),
    errno.ENOTDIR: ('a file is where a folder should be', 'Move the file away'),
    errno.EEXIST: ('a file is where a folder should be', 'Move the file away'),
    errno.EIO: ('the disk or the network failed', 'Try again'),
    errno.ESTALE: ('the network drive is gone', 'Mount it again'),
}
# Where only a text comes, it holds the system's words for the errno.
_MESSAGES = {os.strerror(code): code for code in _REASONS}


class StorageError(RuntimeError):
  """Something of a run could not be written."""


@contextlib.contextmanager
def explained(
    what: str, folder: epath.PathLike, *, needed_bytes: int = 0,
    resume: Callable[[], str] = str,
) -> Generator[None, None, None]:
  """Turns a failure to write into one that says what to do.

  Args:
    what: is written: 'the checkpoint of step 12'.
    folder: that it is written to.
    needed_bytes: size of it, if that is known.
    resume: says what is safe, and how the run goes on.

  Raises:
    StorageError: for what the table above knows.
  """
  try:
    yield
  except Exception as error:
    code = _errno(error)
    if code is None or isinstance(error, StorageError):
      raise
    why, way_out = _REASONS[code]
    sizes = _free(folder) if way_out == _FULL else []
    if needed_bytes and way_out == _FULL:
      sizes.append('up to '
                   f'{humanize.naturalsize(needed_bytes, binary=True)} needed')
    room = f' ({", ".join(sizes)})' if sizes else ''
    raise StorageError(' '.join(filter(None, [
        f'{what[0].upper() + what[1:]} could not be written to {folder}: '
        f'{why}{room}.', f'{way_out}, or use another --workdir.', resume(),
    ]))) from error


def reason(error: BaseException) -> str:
  """Returns what the system said against it, in words; '' if nothing."""
  code = _errno(error)
  return '' if code is None else _REASONS[code][0]


def _errno(error: BaseException) -> int | None:
  """Returns the number of the system's error that started it."""
  seen: set[int] = set()
  chain: BaseException | None = error
  while chain is not None and id(chain) not in seen:
    seen.add(id(chain))
    if isinstance(chain, OSError) and chain.errno in _REASONS:
      return chain.errno
    for message, code in _MESSAGES.items():
      if message in str(chain):
        return code
    chain = chain.__cause__ or chain.__context__
  return None


def _free(folder: epath.PathLike) -> list[str]:
  try:
    free_bytes = shutil.disk_usage(os.fspath(folder)).free
  except OSError:  # A bucket, or gone.
    return []
  return [f'{humanize.naturalsize(free_bytes, binary=True)} free']
