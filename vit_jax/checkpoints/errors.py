"""What to do when the workdir cannot be written to, or a bucket not read.

Each library says it in its own words: Python by an errno, TensorStore by the
text of an error of its own, Orbax by a chain of both from a thread of its own,
and a bucket by what its service answered.
"""

from collections.abc import Callable, Generator, Iterator
import contextlib
import errno
import os
import re
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
_PATH = re.compile(r'\S*/\S*')
_MAX_CHARACTERS = 200  # Of what a service answered.

# What services of buckets answer, as TensorStore, gcsfs, s3fs and Google's own
# libraries put it; what is wrong; and what a person can do about it. The first
# that fits counts. Not 'UNAVAILABLE': so a lost process is reported, too.
_ANSWERS = tuple((re.compile(pattern, re.IGNORECASE), why, way_out)
                 for pattern, why, way_out in (
    (r'bucket.{0,60}(does not|doesn.t) exist|NoSuchBucket|bucket not found',
     'there is no such bucket',
     'Check its name, or make it (gcloud storage buckets create)'),
    (r'UNAUTHENTICATED|\b401\b.{0,40}(http|unauthorized)|response code: 401'
     r'|default credentials|Anonymous caller|invalid_grant'
     r'|Unable to locate credentials|NoCredentials',
     'nobody is logged in, or no longer',
     'Log in (gcloud auth application-default login)'),
    (r'quota|response code: 429|Too Many Requests|rateLimitExceeded|SlowDown',
     'a quota of the bucket or its project is used up',
     'Wait, or have it raised'),
    (r'PERMISSION_DENIED|response code: 403|\bForbidden\b|Access ?Denied'
     r'|does not have storage\.|Insufficient Permission',
     'this account has not the right to',
     'Give it a role that may (of Google: roles/storage.objectUser)'),
    (r'response code: 5\d\d|Cannot connect to host|Name or service not known'
     r'|Temporary failure in name resolution',
     'the service does not answer', 'Try again later'),
))


class StorageError(RuntimeError):
  """Something of a run could not be written, or a bucket not be read."""


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
    StorageError: for what the tables above know.
  """
  try:
    yield
  except Exception as error:
    if isinstance(error, StorageError):
      raise
    raise_answered(
        error, f'{what[0].upper() + what[1:]} could not be written to', folder,
        instead='use another --workdir', resume=resume)
    code = _errno(error)
    if code is None:
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


def raise_answered(
    error: BaseException, what: str, folder: epath.PathLike, *,
    instead: str = '', resume: Callable[[], str] = str,
) -> None:
  """Raises what a bucket said against it and what to do; else nothing.

  Args:
    error: of reading or writing.
    what: failed: 'The checkpoint could not be read from'.
    folder: that it was to be read from or written to.
    instead: another way out.
    resume: says what is safe, and how the run goes on.

  Raises:
    StorageError: for what the table above knows.
  """
  scheme, _, rest = os.fspath(folder).partition('://')
  if not rest or scheme in ('http', 'https'):  # A page is no bucket.
    return
  for link in _chain(error):
    # Not what lies in a path: 'gs://my-bucket/x does not exist' is of x.
    text = _PATH.sub('', f'{type(link).__name__}: {link}')
    for pattern, why, way_out in _ANSWERS:
      if pattern.search(text):
        said = ' '.join(str(link).split()) or type(link).__name__
        ways = ', or '.join(filter(None, [way_out, instead]))
        raise StorageError(
            f'{what} {folder}: {why} ({said[:_MAX_CHARACTERS]}). {ways}. '
            f'{resume()}'.rstrip()) from error


def _chain(error: BaseException) -> Iterator[BaseException]:
  """Yields an error and what it came from, the last first."""
  seen: set[int] = set()
  link: BaseException | None = error
  while link is not None and id(link) not in seen:
    seen.add(id(link))
    yield link
    link = link.__cause__ or link.__context__


def _errno(error: BaseException) -> int | None:
  """Returns the number of the system's error that started it."""
  for chain in _chain(error):
    if isinstance(chain, OSError) and chain.errno in _REASONS:
      return chain.errno
    for message, code in _MESSAGES.items():
      if message in str(chain):
        return code
  return None


def _free(folder: epath.PathLike) -> list[str]:
  try:
    free_bytes = shutil.disk_usage(os.fspath(folder)).free
  except OSError:  # A bucket, or gone.
    return []
  return [f'{humanize.naturalsize(free_bytes, binary=True)} free']
