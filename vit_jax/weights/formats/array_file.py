"""A file of named arrays in any format: headers first, values on demand.

Headers are checked before an array is read, so that a mismatch is cheap and a
file that declares more than it holds is refused before memory is allocated.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
import dataclasses
import errno
import pathlib
from typing import Literal
import zipfile

import ml_dtypes
import numpy as np

from vit_jax import exceptions

# Weights hardly compress, zeros do. Beyond this ratio a file is a zip bomb.
MAX_RATIO, FREE_BYTES = 64, 256 * 2**20
_MAX_LINES = 24  # Lines of an error message.

Format = Literal['npz', 'safetensors', 'pytorch']


@dataclasses.dataclass(frozen=True)
class ArrayFile:
  """Arrays of a file, by name.

  Attributes:
    shapes: declared shapes.
    load: reads one array as it is stored.
    metadata: text in the file's header, or the checksum of its arrays.
    tied: further names of arrays, which `load` knows, and their stored names.
  """
  path: str
  format: Format
  shapes: Mapping[str, tuple[int, ...]]
  load: Callable[[str], np.ndarray]
  metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
  tied: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def read(self, name: str) -> np.ndarray:
    """Returns an array as float32.

    Raises:
      ValueError: if it is not an array of finite floats, or is damaged.
    """
    return to_float32(self.load(name), name=name, path=self.path)


def format_of(path: pathlib.Path) -> Format:
  """Returns the format of a file by its content.

  Raises:
    ValueError: if it is not a file of weights.
  """
  with path.open('rb') as file:
    start = file.read(30)
    # torch.save writes ARCHIVE/data.pkl or ARCHIVE/.format_version first; its
    # name is at byte 30, so that a truncated file is recognised as well.
    member = file.read(min(int.from_bytes(start[26:28], 'little'), 4096))
  if start[:4] in (b'PK\x03\x04', b'PK\x05\x06'):
    return 'pytorch' if member.endswith(
        (b'/data.pkl', b'/.format_version', b'/version')) else 'npz'
  size = path.stat().st_size
  if start[8:9] == b'{' and int.from_bytes(start[:8], 'little') < max(
      size, 100_000_000):
    return 'safetensors'
  # A pickle of protocol 2 that begins with the magic number of old torch.save.
  if start[:2] == b'\x80\x02':
    return 'pytorch'
  raise ValueError(
      f'{path} is not a file of weights, or truncated: {size:,} bytes that '
      f'begin with {start[:16]!r}. Expected .npz, .safetensors or a PyTorch '
      'state dict.')


def to_float32(
    array: np.ndarray, *, name: str, path: str,
) -> np.ndarray:
  """Returns an array of floats as float32.

  In an .npz file, two-byte void is bfloat16.

  Raises:
    ValueError: if the array is not of floats, or not finite.
  """
  if array.dtype.kind == 'V' and array.dtype.itemsize == 2:
    array = array.view(ml_dtypes.bfloat16)
  if array.dtype.kind != 'f' and array.dtype != ml_dtypes.bfloat16:
    raise ValueError(
        f'{path}: {name} has dtype {array.dtype}, but a parameter must be '
        'float32, float16, bfloat16 or float64.')
  # A value beyond float32 becomes infinite, which is an error below.
  with np.errstate(over='ignore'):
    values = array.astype(np.float32)
  if count := values.size - np.count_nonzero(np.isfinite(values)):
    raise ValueError(
        f'{path}: {name} holds {count} of {values.size} values that are NaN or '
        'infinite. The weights are damaged, or their training has diverged.')
  return values


def check_unpacked(path: pathlib.Path, declared: int) -> None:
  """Raises ValueError if `declared` bytes of arrays make a file a zip bomb."""
  size = path.stat().st_size
  if declared > MAX_RATIO * size + FREE_BYTES:
    raise ValueError(
        f'{path}: {size:,} bytes declare {declared:,} bytes of arrays. Weights '
        'do not compress so well: this is a zip bomb, and was not unpacked.')


def intact(path: pathlib.Path) -> contextlib.AbstractContextManager[None]:
  """Converts the exceptions of a library that reads a file into one error.

  A disk or network file system that fails is an OSError: the file may be whole.
  """
  def rewrite(error: Exception) -> Exception | None:
    if isinstance(error, MemoryError):
      return None
    # A wrong offset in an archive is an invalid argument of `seek`.
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
      return OSError(error.errno, f'{path} could not be read: {error.strerror}')
    # Each compression method raises other types.
    return ValueError(
        f'{path} is truncated or damaged: {type(error).__name__}: {error}. '
        'Copy or download it again.')

  return exceptions.replaced_by(rewrite)


@contextlib.contextmanager
def open_zip(path: pathlib.Path) -> Generator[zipfile.ZipFile, None, None]:
  """Opens a zip archive, unless it is a zip bomb or damaged."""
  with intact(path):
    archive = zipfile.ZipFile(path)
  with archive:
    check_unpacked(path, sum(m.file_size for m in archive.infolist()))
    with intact(path):
      yield archive


def indented(problems: Sequence[str]) -> str:
  """Returns the first lines of a message, indented."""
  shown = [f'  {line}' for line in problems[:_MAX_LINES]]
  if len(problems) > _MAX_LINES:
    shown.append(f'  ... and {len(problems) - _MAX_LINES} more')
  return '\n'.join(shown)
