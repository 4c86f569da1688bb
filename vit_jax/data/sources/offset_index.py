"""Index of the records in a large file: built by one scan and saved for reuse.

Tar and TFRecord files can only be scanned from their start. The offsets are
saved as `.NAME.KIND-index.safetensors` next to the file or, where that is
read-only, in `~/.cache/vit_jax`, and are valid while the file's size and times
are unchanged. An index may come with the data from elsewhere, so it is not
trusted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import os
import typing
from typing import BinaryIO

from etils import epath
from jaxtyping import Int64, UInt
import numpy as np
import safetensors.numpy

from vit_jax import atomic_files
from vit_jax.data import shared

_VERSION = 6
_THREADS = 8
_FREE_BYTES = 2**16  # Of an index, beyond the size of its file.

Arrays = Mapping[str, np.ndarray]


def load_or_build(
    paths: Sequence[epath.Path], build: Callable[[epath.Path], Arrays], *,
    kind: str,
) -> list[Arrays]:
  """Returns the index of each file; `build` scans a file that has none."""
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    stamps = list(pool.map(_stamp, paths))
    saved = list(pool.map(functools.partial(_load, kind=kind), paths, stamps))
    if saved.count(None) > _THREADS:
      print(f'Indexing {saved.count(None):,} files once ...', flush=True)

    def finish(index: int) -> Arrays:
      if (arrays := saved[index]) is None:
        arrays = build(paths[index])
        _save(paths[index], stamps[index], arrays, kind)
      return arrays

    return list(pool.map(finish, range(len(paths))))


def open_parts(path: epath.PathLike) -> BinaryIO:
  """Opens a file for reading small, distant parts."""
  if atomic_files.is_remote(path):
    return typing.cast(BinaryIO, epath.Path(path).open('rb'))
  # Without read-ahead, or the whole file would be read.
  file = open(path, 'rb', buffering=0)  # noqa: SIM115
  if hasattr(os, 'posix_fadvise'):
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
  return typing.cast(BinaryIO, file)


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
  """Byte ranges of several files, from their `starts` and `sizes`."""
  paths: tuple[str, ...]
  starts: UInt[np.ndarray, 'records']
  sizes: UInt[np.ndarray, 'records']
  ends: Int64[np.ndarray, 'files']  # Number of records up to a file's end.

  @classmethod
  def join(
      cls, paths: Iterable[epath.Path], indices: Sequence[Arrays],
  ) -> 'Records':
    """Returns the records of all files in order."""
    empty = [np.zeros(0, np.int64)]
    starts, sizes = (
        shared.share(shared.compact(np.concatenate(
            [*empty, *(arrays[name] for arrays in indices)])))
        for name in ('starts', 'sizes'))
    return cls(tuple(map(os.fspath, paths)), starts, sizes, np.cumsum(
        [len(arrays['starts']) for arrays in indices], dtype=np.int64))

  def __len__(self) -> int:
    return len(self.starts)

  def path(self, index: int) -> str:
    """Returns the file of a record."""
    return self.paths[int(np.searchsorted(self.ends, index, side='right'))]

  def read(self, index: int, *, extra: int = 0) -> bytes:
    """Returns a record and `extra` bytes after it.

    Raises:
      ValueError: if its file is shorter.
    """
    size = int(self.sizes[index]) + extra
    with open_parts(self.path(index)) as file:
      file.seek(int(self.starts[index]))
      data = file.read(size)
    if len(data) != size:
      raise ValueError(
          f'{self.path(index)} ends within a record: it was changed while it '
          'was read.')
    return data


def _stamp(path: epath.Path) -> tuple[int, ...]:
  """Returns the file's size and times.

  Copying programs may set the modification time, but not the ctime. Mounted
  buckets renumber inodes, so inodes are not included.
  """
  if not atomic_files.is_remote(path):
    local = os.stat(path)
    return local.st_size, local.st_mtime_ns, local.st_ctime_ns
  remote = path.stat()
  return int(remote.length), int(remote.mtime)


def _index_paths(path: epath.Path, kind: str) -> list[epath.Path]:
  """Returns the possible paths of an index: next to the file, in the cache."""
  name = f'.{path.name}.{kind}-index.safetensors'  # Hidden from glob patterns.
  text = os.fspath(
      path if atomic_files.is_remote(path) else os.path.abspath(path))
  digest = hashlib.blake2b(
      os.fsencode(text), digest_size=8).hexdigest()
  places = [path.parent / name]
  with contextlib.suppress(OSError):
    places.append(shared.cache_folder() / digest / name)
  return places


def _load(
    path: epath.Path, stamp: tuple[int, ...], kind: str) -> Arrays | None:
  max_bytes = stamp[0] + _FREE_BYTES
  for place in _index_paths(path, kind):
    try:
      with place.open('rb') as file:
        data = file.read(max_bytes + 1)
      if len(data) > max_bytes:
        raise ValueError('it is larger than the file that it belongs to')
      arrays = safetensors.numpy.load(data)
      if arrays.pop('stamp').tolist() == [_VERSION, *stamp]:
        starts, sizes = arrays['starts'], arrays['sizes']
        if not (starts.dtype == sizes.dtype == np.int64
                and starts.shape == sizes.shape == (len(starts),)):
          raise ValueError('it has no place for each record')
        if not ((starts >= 0) & (sizes >= 0)
                & (sizes <= stamp[0] - starts)).all():
          raise ValueError('it has records beyond the end of the file')
        if any(np.count_nonzero(text == 0) != max(0, len(starts) - 1)
               for text in arrays.values() if text.dtype == np.uint8):
          raise ValueError('it has more or fewer texts than records')
        return arrays
    except FileNotFoundError:
      continue
    except Exception as error:  # Safetensors and NumPy raise many types.
      print(f'{place} is not an index and is replaced: {error}', flush=True)
  return None


def _save(
    path: epath.Path, stamp: tuple[int, ...], arrays: Arrays, kind: str,
) -> None:
  data = safetensors.numpy.save({
      **{name: np.ascontiguousarray(array) for name, array in arrays.items()},
      'stamp': np.array([_VERSION, *stamp], np.int64)})
  for place in _index_paths(path, kind):
    with contextlib.suppress(OSError):  # Read-only or full: try the next place.
      atomic_files.write_bytes(place, data)
      return
