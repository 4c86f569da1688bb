"""Index of the records in a large file: built by one scan and saved for reuse.

Tar and TFRecord files can only be scanned from their start. Their records are
the rows of an Arrow table with the columns `start` and `size`, which is saved
as `.NAME.KIND-index.arrow` beside the file or, where that is read-only, in
`~/.cache/vit_jax`, and is used while the file's size and times are unchanged.
It is mapped into memory.
"""

from collections.abc import Callable, Iterable, Sequence
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import typing
from typing import BinaryIO

from etils import epath
from jaxtyping import Int64, UInt
import numpy as np
import pyarrow as pa
from pyarrow import feather

from vit_jax import atomic_files
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError

_THREADS = 8
_STAMP = b'stamp'


def load_or_build(
    paths: Sequence[epath.Path], build: Callable[[epath.Path], pa.Table], *,
    kind: str,
) -> list[pa.Table]:
  """Returns the index of each file; `build` scans a file that has none."""
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    saved = [*pool.map(functools.partial(_load, kind=kind), paths)]
    if saved.count(None) > _THREADS:
      print(f'Indexing {saved.count(None):,} files once ...', flush=True)
    return [*pool.map(
        lambda path, table: _build(path, build, kind) if table is None else (
            table), paths, saved)]


def _build(
    path: epath.Path, build: Callable[[epath.Path], pa.Table], kind: str,
) -> pa.Table:
  """Scans a file and saves its index."""
  stamp, sink = _stamp(path), pa.BufferOutputStream()
  table = build(path).replace_schema_metadata({_STAMP: stamp})
  feather.write_feather(table, sink, compression='uncompressed')
  for place in _index_paths(path, kind):
    with contextlib.suppress(OSError):  # Read-only or full: try the next place.
      atomic_files.write_bytes(place, sink.getvalue().to_pybytes())
      break
  return table


def _load(path: epath.Path, kind: str) -> pa.Table | None:
  """Returns the saved index of a file if the file is unchanged."""
  for place in _index_paths(path, kind):
    with contextlib.suppress(OSError, pa.ArrowInvalid):  # There is none.
      table = feather.read_table(os.fspath(place), memory_map=True)
      if (table.schema.metadata or {}).get(_STAMP) == _stamp(path):
        return table
  return None


def _stamp(path: epath.Path) -> bytes:
  """Returns the file's size and times.

  Copying programs may set the modification time, but not the ctime. Mounted
  buckets renumber inodes, so inodes are not included.
  """
  if atomic_files.is_remote(path):
    remote = path.stat()
    return f'8 {remote.length} {remote.mtime}'.encode()
  local = os.stat(path)
  return f'8 {local.st_size} {local.st_mtime_ns} {local.st_ctime_ns}'.encode()


def _index_paths(path: epath.Path, kind: str) -> list[epath.Path]:
  """Returns the possible paths of an index: next to the file, in the cache."""
  name = f'.{path.name}.{kind}-index.arrow'  # Hidden from glob patterns.
  text = atomic_files.absolute(path)
  cache = epath.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache')
  cached = (cache.expanduser() / 'vit_jax'
            / f'{split_strings.stable_hash(text):016x}' / name)
  return [cached] if atomic_files.is_remote(path) else [
      path.parent / name, cached]


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
      cls, paths: Iterable[epath.Path], indices: Sequence[pa.Table],
  ) -> 'Records':
    """Returns the records of all files in order."""
    starts, sizes = (
        columns_lib.compact(pa.chunked_array(
            [chunk for table in indices for chunk in table[name].chunks],
            pa.int64()).to_numpy()) for name in ('start', 'size'))
    return cls(tuple(map(os.fspath, paths)), starts, sizes, np.cumsum(
        [len(table) for table in indices], dtype=np.int64))

  def __len__(self) -> int:
    return len(self.starts)

  def path(self, index: int) -> str:
    """Returns the file of a record."""
    return self.paths[int(np.searchsorted(self.ends, index, side='right'))]

  def read(self, index: int, *, extra: int = 0) -> bytes:
    """Returns a record and `extra` bytes after it.

    Raises:
      UserError: if its file is shorter.
    """
    size = int(self.sizes[index]) + extra
    with open_parts(self.path(index)) as file:
      file.seek(int(self.starts[index]))
      data = file.read(size)
    if len(data) != size:
      raise UserError(
          f'{self.path(index)} ends within a record: it was changed while it '
          'was read.')
    return data
