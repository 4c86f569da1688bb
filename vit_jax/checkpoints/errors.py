"""Storage errors that name the path, the free space and what to do.

The cause is an errno from Python, an error text from TensorStore, a chain of
both that Orbax raises from a thread, or the response of a bucket's service. The
original message is kept in each case.
"""

from collections.abc import Callable
import contextlib
import os
import re
import shutil

from etils import epath

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import exceptions
from vit_jax.parallel import coordination

# Operating system errors as TensorStore reports them, and errors of buckets.
_OS_ERROR = re.compile(r'(?:: ([^":[]+) )?\[(?:OS error|os_error_code)')
_BUCKET_ERROR = re.compile(
    r'bucket|credentials|HTTP response|PERMISSION_DENIED|UNAUTHENTICATED'
    r'|Forbidden|Access ?Denied|quota|Cannot connect', re.IGNORECASE)
_PATH = re.compile(r'\S*/\S*')


class StorageError(RuntimeError):
  """A file of a run could not be written, or a bucket could not be read."""


def explain_errors(
    what: str, folder: epath.PathLike, *, resume: Callable[[], str] = str,
) -> contextlib.AbstractContextManager[None]:
  """Rewrites storage errors that occur while writing `what`.

  A save that failed because a process is lost is a `coordination.LostError`.
  """
  # First, because Orbax reports a lost process as a TimeoutError, an OSError.
  return exceptions.replaced_by(
      lambda error: coordination.lost_error(error) or storage_error(
          error, f'Cannot write {what} to', folder,
          more=lambda: f', or use another --workdir. {resume()}'.rstrip()))


def storage_error(
    error: Exception, action: str, path: epath.PathLike, *,
    more: Callable[[], str] = lambda: '.',
) -> StorageError | None:
  """Returns an error with path and advice; None for other kinds of errors.

  Args:
    error: the original exception.
    action: failed action, such as 'Cannot read'.
    path: location of the data.
    more: returns the end of the advice.
  """
  is_bucket = (atomic_files.is_remote(path)
               and not os.fspath(path).startswith('http'))
  found = next((link for link in exceptions.causes(error)
                if _is_storage_error(link, is_bucket=is_bucket)), None)
  if found is None or isinstance(
      error, (StorageError, coordination.LostError)):
    return None
  reported = _OS_ERROR.search(str(found))
  message = (getattr(found, 'strerror', None) or (reported and reported[1])
             or exceptions.first_line(found))
  advice = (
      "Check the bucket's name, your login (gcloud auth application-default "
      'login), your role (roles/storage.objectUser) and quotas'
      if is_bucket else
      f'Check free space{_free(path)}, inodes, quota and permissions')
  return StorageError(f'{action} {path}: {message}. {advice}{more()}')


def _is_storage_error(error: BaseException, *, is_bucket: bool) -> bool:
  # Paths may contain these words: 'gs://my-bucket/x does not exist'.
  text = _PATH.sub('', str(error))
  if is_bucket and _BUCKET_ERROR.search(text):
    return True
  is_os_error = (isinstance(error, OSError)
                 and not isinstance(error, FileNotFoundError))
  return is_os_error or _OS_ERROR.search(text) is not None


def _free(path: epath.PathLike) -> str:
  with contextlib.suppress(OSError):
    free = shutil.disk_usage(os.fspath(path)).free
    return f' ({console.format_bytes(free)} free)'
  return ''
