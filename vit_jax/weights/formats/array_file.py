"""A file of named arrays in any format: headers first, values on demand.

Headers are checked before an array is read, so that a mismatch is cheap and a
file that declares more than it holds is refused before memory is allocated.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
import dataclasses
import pathlib
import zipfile

import ml_dtypes
import numpy as np

from vit_jax import exceptions
from vit_jax.exceptions import UserError

# Weights hardly compress, zeros do. Beyond this ratio a file is a zip bomb.
MAX_RATIO, FREE_BYTES = 64, 256 * 2**20
_MAX_LINES = 24  # Lines of an error message.


@dataclasses.dataclass(frozen=True)
class ArrayFile:
  """Arrays of a file, by name.

  Attributes:
    format: 'npz', or that of a leaf.
    shapes: declared shapes.
    load: reads one array as it is stored.
    metadata: text in the file's header, or the checksum of its arrays.
    tied: further names of arrays, which `load` knows, and their stored names.
  """
  path: str
  format: str
  shapes: Mapping[str, tuple[int, ...]]
  load: Callable[[str], np.ndarray]
  metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
  tied: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def read(self, name: str) -> np.ndarray:
    """Returns an array as float32.

    Raises:
      UserError: if it is not an array of finite floats, or is damaged.
    """
    return to_float32(self.load(name), name=name, path=self.path)


def to_float32(
    array: np.ndarray, *, name: str, path: str, stored_as: str = 'float32',
) -> np.ndarray:
  """Returns an array of floats as float32, rounded to the type of a file.

  In an .npz file, two-byte void is bfloat16.

  Raises:
    UserError: if the array is not of floats, or not finite in that type.
  """
  if array.dtype.kind == 'V' and array.dtype.itemsize == 2:
    array = array.view(ml_dtypes.bfloat16)
  if array.dtype.kind != 'f' and array.dtype != ml_dtypes.bfloat16:
    raise UserError(
        f'{path}: {name} has dtype {array.dtype}, but a parameter must be '
        'float32, float16, bfloat16 or float64.')
  # A value beyond the type becomes infinite, which is an error below.
  with np.errstate(over='ignore'):
    values = array.astype(stored_as).astype(np.float32, copy=False)
  if count := values.size - np.count_nonzero(np.isfinite(values)):
    raise UserError(
        f'{path}: {name} holds {count} of {values.size} values that are NaN or '
        f'infinite as {stored_as}. The weights are damaged, their training has '
        'diverged, or this type is too small for them.')
  return values


def check_unpacked(path: pathlib.Path, declared: int) -> None:
  """Raises UserError if `declared` bytes of arrays make a file a zip bomb."""
  size = path.stat().st_size
  if declared > MAX_RATIO * size + FREE_BYTES:
    raise UserError(
        f'{path}: {size:,} bytes declare {declared:,} bytes of arrays. Weights '
        'do not compress so well: this is a zip bomb, and was not unpacked.')


def intact(path: pathlib.Path) -> contextlib.AbstractContextManager[None]:
  """Converts the exceptions of a library that reads a file into one error.

  A disk or network file system that fails is an OSError: the file may be whole.
  """
  return exceptions.naming(
      f'{path} is truncated or damaged (copy or download it again)')


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
