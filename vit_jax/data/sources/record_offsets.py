"""Where records lie in large files: found once, kept, then read at random.

A tar or a TFRecord file can only be walked from its start. One walk that reads
headers alone and jumps over what they head finds every offset; it is kept as
`.NAME.KIND-index.npz` beside the file or, where that cannot be written to, in
`~/.cache/vit_jax`, and holds as long as the file's size and times are the same.
"""

from collections.abc import Callable, Mapping, Sequence
import concurrent.futures
import contextlib
import functools
import hashlib
import io
import os
import typing
from typing import Any, BinaryIO
import uuid
import zipfile

from etils import epath
import numpy as np

_VERSION = 2
_THREADS = 8
# Walking less than this takes no time worth a line.
_SHOWN_BYTES = 2 * 2**30

Arrays = Mapping[str, np.ndarray]


def load_or_build(
    paths: Sequence[epath.Path], build: Callable[[epath.Path], Arrays], *,
    kind: str,
) -> list[Arrays]:
  """Returns the index of each file, from where it is kept or built anew.

  Args:
    paths: the files.
    build: walks one of them and returns its arrays.
    kind: of index, a word for file names.
  """
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    stamps = list(pool.map(_stamp, paths))
    kept = list(pool.map(functools.partial(_load, kind=kind), paths, stamps))
    lacking = [i for i, arrays in enumerate(kept) if arrays is None]
    num_bytes = sum(int(stamps[i][0]) for i in lacking)
    if num_bytes > _SHOWN_BYTES:
      print(f'Finds where the examples of {len(lacking):,} files lie, once: '
            f'headers alone of {num_bytes / 2**30:,.1f} GiB ...', flush=True)

    def build_and_keep(i: int) -> Arrays:
      arrays = build(paths[i])
      _keep(paths[i], stamps[i], arrays, kind)
      return arrays

    built = dict(zip(lacking, pool.map(build_and_keep, lacking)))
  return [typing.cast(Arrays, built.get(i, arrays))
          for i, arrays in enumerate(kept)]


def open_for_walk(path: epath.Path) -> BinaryIO:
  """Opens a file of which small parts, far apart, are read."""
  if '://' in os.fspath(path):
    return typing.cast(BinaryIO, path.open('rb'))
  # Neither Python nor the kernel reads ahead, or all of it would be read.
  file = open(path, 'rb', buffering=0)  # noqa: SIM115
  if hasattr(os, 'posix_fadvise'):
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
  return typing.cast(BinaryIO, file)


def read_at(path: str, offset: int, size: int) -> bytes:
  """Returns `size` bytes of a file.

  Raises:
    ValueError: if the file has become shorter.
  """
  with epath.Path(path).open('rb') as file:
    file.seek(offset)
    data = file.read(size)
  if len(data) != size:
    raise ValueError(
        f'{path} ends within a record: it was changed while it was read.')
  return data


def pack(texts: Sequence[str]) -> np.ndarray:
  """Returns texts as one array of bytes, as `np.load` takes it from anyone."""
  return np.frombuffer('\0'.join(texts).encode(), np.uint8)


def unpack(array: np.ndarray, count: int) -> list[str]:
  """Returns the texts that `pack` packed."""
  return array.tobytes().decode().split('\0') if count else []


def _stamp(path: epath.Path) -> tuple[int, ...]:
  """Returns what changes when a file does: its size, and its times.

  What writes a file may set the time of its content as it likes, as copying
  programs do; the time of its entry (ctime), only the system sets. A copy, or
  other permissions, cost a walk: headers alone. Not the inode, which a bucket
  that is mounted numbers anew each time.
  """
  if '://' not in os.fspath(path):
    local = os.stat(path)
    return local.st_size, local.st_mtime_ns, local.st_ctime_ns
  found = path.stat()
  return int(found.length), int(found.mtime)


def _places(path: epath.Path, kind: str) -> tuple[epath.Path, epath.Path]:
  """Returns where an index may be kept: beside the file, and in a cache."""
  # A leading dot: no pattern for the data finds it.
  name = f'.{path.name}.{kind}-index.npz'
  cache = epath.Path(
      os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser()
  text = os.path.abspath(path) if '://' not in str(path) else os.fspath(path)
  place = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
  return path.parent / name, cache / 'vit_jax' / place / name


def _load(
    path: epath.Path, stamp: tuple[int, ...], kind: str) -> Arrays | None:
  for place in _places(path, kind):
    try:
      with np.load(io.BytesIO(place.read_bytes()), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    # Not there; or damaged, and then it is built anew.
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
      continue
    if arrays.pop('stamp', np.zeros(0)).tolist() == [_VERSION, *stamp]:
      return arrays
  return None


def _keep(
    path: epath.Path, stamp: tuple[int, ...], arrays: Arrays, kind: str,
) -> None:
  buffer = io.BytesIO()
  content: dict[str, Any] = {
      **arrays, 'stamp': np.array([_VERSION, *stamp], np.int64)}
  np.savez(buffer, **content)
  for place in _places(path, kind):
    # Several processes may find the same at once: each under its own name.
    new = place.parent / f'{place.name}.{uuid.uuid4().hex}.tmp'
    try:
      place.parent.mkdir(parents=True, exist_ok=True)
      new.write_bytes(buffer.getvalue())
      new.replace(place)
      return
    except OSError:  # Read-only, or full: the next place, or the next start.
      with contextlib.suppress(OSError):
        new.unlink(missing_ok=True)
