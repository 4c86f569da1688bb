"""Arrays of an open dataset in memory-mapped files, which processes share.

Pickling such an array writes the path of its file: worker processes, and other
processes of the host that open the same data, share the memory. The files are
named by a hash of their content in `~/.cache/vit_jax/arrays`, so none is ever
out of date, and damaged ones are written again. Beyond 16 GiB, those that were
not opened for the longest time are removed, unless a run opened them today.
"""

import contextlib
import ctypes
import hashlib
import mmap
import os
import pathlib
import time
import typing
from typing import Any
import weakref

from etils import epath
from jaxtyping import Integer, Shaped, UInt
import numpy as np
import pyarrow as pa

from vit_jax import atomic_files

_MIN_BYTES = 2**20  # Smaller arrays are copied: a file would be slower.
_MAX_BYTES, _KEEP_SECS = 16 * 2**30, 86_400  # Of the folder, of its files.
_MAPPED: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def cache_folder() -> epath.Path:
  """Returns the folder of files that can be computed again.

  Raises:
    OSError: if the user has no home folder, as in some containers.
  """
  folder = epath.Path(
      os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser()
  if not folder.is_absolute():
    raise OSError(
        f'{folder} is not an absolute path. Set HOME or XDG_CACHE_HOME.')
  return folder / 'vit_jax'


def compact(
    numbers: Integer[np.ndarray, '*shape']) -> UInt[np.ndarray, '*shape']:
  """Returns numbers from 0 in the smallest type."""
  return numbers.astype(np.min_scalar_type(numbers.max(initial=0)), copy=False)


def share(array: Shaped[np.ndarray, '*shape']) -> Shaped[np.ndarray, '*shape']:
  """Returns an equal array that is mapped from a file if it is large.

  Where the folder is missing, read-only or full, each process has a copy.
  """
  array = np.ascontiguousarray(array)
  if array.nbytes < _MIN_BYTES:
    return array
  content = array.reshape(-1).view(np.uint8).data
  digest = _digest(content)
  try:
    path = cache_folder() / 'arrays' / digest.hexdigest()
    exists = path.exists()
    if not _holds(path, digest.digest()):
      # A file written since then may be mapped by another host: it is kept.
      if exists:
        path.unlink(missing_ok=True)
      with (contextlib.suppress(FileExistsError),
            atomic_files.create(path) as new):
        new.write_bytes(content)
        _make_space(path.parent)
    return _open(os.fspath(path), array.dtype.str, array.shape)
  except (OSError, ValueError):
    return array


def _make_space(folder: epath.Path) -> None:
  """Removes files of past runs beyond the size of the folder."""
  left = _MAX_BYTES
  found = [(path.stat(), path) for path in pathlib.Path(folder).rglob('*')
           if path.is_file()]  # Also those of processes killed while writing.
  for stat, path in sorted(
      found, key=lambda pair: pair[0].st_mtime, reverse=True):
    left -= stat.st_size
    if left < 0 and stat.st_mtime < time.time() - _KEEP_SECS:
      path.unlink(missing_ok=True)


def _digest(content: Any = b'') -> Any:
  return hashlib.blake2b(content, digest_size=16)


def _holds(path: epath.Path, digest: bytes) -> bool:
  """Whether a file exists and has a content with this digest."""
  try:
    with open(path, 'rb') as file:
      return hashlib.file_digest(file, _digest).digest() == digest
  except (OSError, ValueError):
    return False


class _Mapped(np.memmap):
  """A read-only array that is pickled as the path of its file."""

  def __reduce_ex__(self, protocol: Any) -> Any:
    if isinstance(self.base, mmap.mmap):
      return _open, (self.filename, self.dtype.str, self.shape)
    return np.asarray(self).__reduce_ex__(protocol)  # A part of one.


def release() -> None:
  """Returns memory to the system that only opening a dataset needed."""
  for content in list(_MAPPED):
    content.madvise(mmap.MADV_DONTNEED)  # Pages are read again when needed.
  pa.default_memory_pool().release_unused()
  if hasattr(libc := ctypes.CDLL(None), 'malloc_trim'):  # Of glibc.
    libc.malloc_trim(0)


def _open(path: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
  expected = int(np.prod(shape)) * np.dtype(dtype).itemsize
  if not os.path.isfile(path) or os.path.getsize(path) != expected:
    raise ValueError(
        f'{path} was removed or changed after the run wrote it; expected '
        f'{expected:,} bytes. Start the run again, which writes the file '
        'again.')
  with contextlib.suppress(OSError):
    os.utime(path)  # Keeps the file in the folder.
  array = _Mapped(path, dtype, 'r', shape=shape)
  _MAPPED.add(typing.cast(mmap.mmap, array.base))
  return array
