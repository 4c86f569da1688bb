"""Storage errors that name the path, the free space and what to do."""

import contextlib
import os
import shutil

from etils import epath

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import exceptions
from vit_jax.parallel import coordination


class StorageError(RuntimeError):
  """A file of a run could not be written."""


def explain_errors(
    what: str, folder: epath.PathLike, *,
    kind: type[Exception] = OSError,
) -> contextlib.AbstractContextManager[None]:
  """Rewrites storage errors that occur while writing `what`.

  A save that failed because a process is lost is a `coordination.LostError`.

  Args:
    what: name of the file.
    folder: the workdir.
    kind: exceptions to rewrite. Orbax wraps those of the operating system, and
      TensorStore has its own.
  """
  def rewrite(error: Exception) -> Exception | None:
    # First, because Orbax reports a lost process as a TimeoutError, an OSError.
    if lost := coordination.lost_error(error):
      return lost
    if isinstance(error, (StorageError, coordination.LostError)) or (
        not isinstance(error, kind)):
      return None
    *_, cause = exceptions.causes(error)
    message = getattr(cause, 'strerror', None) or exceptions.first_line(
        cause, max_characters=1000)
    advice = (
        "the bucket's name, your login (gcloud auth application-default login),"
        ' your role (roles/storage.objectUser) and quotas'
        if atomic_files.is_remote(folder) else
        f'free space{_free(folder)}, inodes, quota and permissions')
    return StorageError(
        f'Cannot write {what} to {folder}: {message}. Check {advice}, or use '
        'another --workdir. Then the same command resumes from the last '
        'checkpoint.')

  return exceptions.replaced_by(rewrite)


def _free(path: epath.PathLike) -> str:
  with contextlib.suppress(OSError):
    free = shutil.disk_usage(os.fspath(path)).free
    return f' ({console.format_bytes(free)} free)'
  return ''
