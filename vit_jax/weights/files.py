"""A file of named arrays, whatever its format: shapes first, values on demand.

A file is looked at before it is believed. What it declares is known from its
header, without reading an array, so that a mismatch costs nothing and a file
that declares more than it holds is turned away before memory is asked for.
"""

from collections.abc import Callable, Mapping
import dataclasses
import pathlib
from typing import Any, Literal

import ml_dtypes
import numpy as np

# Weights are noise to a compressor: they hardly shrink. Zeros do, and a file
# may hold some; beyond this it is a bomb, whatever it says.
MAX_RATIO, FREE_BYTES = 64, 256 * 2**20

Format = Literal['npz', 'safetensors', 'pytorch']


@dataclasses.dataclass(frozen=True)
class Header:
  """What a file declares of an array."""
  shape: tuple[int, ...]
  dtype: str


@dataclasses.dataclass(frozen=True)
class ArrayFile:
  """Arrays of a file.

  Attributes:
    path: of the file.
    format: of the file.
    headers: by the names that the file gives.
    load: reads one array, as it is stored.
    metadata: text that the file holds beside the arrays.
  """
  path: str
  format: Format
  headers: Mapping[str, Header]
  load: Callable[[str], np.ndarray]
  metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def read(self, name: str) -> np.ndarray:
    """Returns an array as float32, every value finite.

    Raises:
      ValueError: if it is no array of floats, or holds NaN or infinity, or
        cannot be read whole.
    """
    return to_float32(self.load(name), name=name, path=self.path)


def sniff(path: pathlib.Path) -> Format | None:
  """Returns the format of a file, told by its content; None if it has none."""
  size = path.stat().st_size
  with path.open('rb') as file:
    start = file.read(9)
  if start[:4] in (b'PK\x03\x04', b'PK\x05\x06'):
    return 'pytorch' if _is_torch_zip(path) else 'npz'
  if len(start) == 9 and start[8:] == b'{' and (
      int.from_bytes(start[:8], 'little') < max(size, 100_000_000)):
    return 'safetensors'
  # A pickle of protocol 2 that begins with the magic number of old torch.save.
  if start[:2] == b'\x80\x02':
    return 'pytorch'
  return None


def _is_torch_zip(path: pathlib.Path) -> bool:
  # The first member of what torch.save writes is ARCHIVE/data.pkl (or, lately,
  # ARCHIVE/.format_version); the name stands at byte 30 of the file, so that
  # even a truncated file shows it.
  with path.open('rb') as file:
    start = file.read(30)
    length = int.from_bytes(start[26:28], 'little')
    name = file.read(min(length, 4096))
  return name.endswith((b'/data.pkl', b'/.format_version', b'/version'))


def to_float32(
    array: np.ndarray, *, name: str, path: str,
) -> np.ndarray:
  """Returns an array of floats as float32, or raises.

  bfloat16 stored as void is what NumPy makes of it in an .npz: two bytes
  without a meaning. No other type of two bytes is ever stored so.
  """
  if array.dtype.kind == 'V' and array.dtype.itemsize == 2:
    array = array.view(ml_dtypes.bfloat16)
  is_bfloat16 = array.dtype == np.dtype(ml_dtypes.bfloat16)
  if array.dtype.kind != 'f' and not is_bfloat16:
    raise ValueError(
        f'{path}: {name} has dtype {array.dtype}, but a parameter must be '
        'float32, float16, bfloat16 or float64.')
  # A value beyond float32 becomes infinite here, and is told below.
  with np.errstate(over='ignore'):
    values = array.astype(np.float32)
  finite = np.isfinite(values)
  if not finite.all():
    count = int(values.size - finite.sum())
    raise ValueError(
        f'{path}: {name} holds {count} of {values.size} values that are NaN or '
        'infinite. The weights are damaged, or their training has diverged.')
  return values


def check_unpacked(path: pathlib.Path, declared: int) -> None:
  """Raises if a file is a bomb.

  Args:
    path: of the file.
    declared: bytes that its arrays would take in memory.

  Raises:
    ValueError: if these are far more than weights could have shrunk from.
  """
  size = path.stat().st_size
  if declared > MAX_RATIO * size + FREE_BYTES:
    raise ValueError(
        f'{path}: {size:,} bytes declare to hold {declared:,}. Weights do not '
        'compress so well: this is a zip bomb, and was not unpacked.')


def is_parameter(header: Header) -> bool:
  """Whether a header is that of floats."""
  return header.dtype in (
      'float16', 'float32', 'float64', 'bfloat16', '|V2')


def as_text(value: Any) -> str:
  """Returns a shape as messages show it: (3, 4)."""
  return str(tuple(int(n) for n in value))
