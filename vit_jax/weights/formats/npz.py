"""Reads and writes .npz files; the published weights are in this format.

`numpy.load` would allocate whatever a header declares. This reader checks every
header against the archive first, and never unpickles.
"""

from collections.abc import Mapping
import io
import math
import pathlib
from typing import Any
import zlib

import numpy as np

from vit_jax import exceptions
from vit_jax import untrusted
from vit_jax.weights.formats import array_file

CHECKSUM = 'checksum'  # Key of the metadata.
# Usual headers take 120 bytes. Deeply nested ones exhaust the parser's stack.
MAX_HEADER_BYTES = 4096


def open_file(path: str | pathlib.Path) -> array_file.ArrayFile:
  """Opens an .npz file and reads its headers.

  Raises:
    ValueError: if the file is truncated, holds Python objects, or declares
      more than it contains.
  """
  path = pathlib.Path(path)
  starts = []
  with array_file.open_zip(path) as archive:
    for member in archive.infolist():
      with archive.open(member) as stream:
        starts.append((member, stream.read(MAX_HEADER_BYTES)))
  shapes: dict[str, tuple[int, ...]] = {}
  for member, start in starts:
    name = member.filename.removesuffix('.npy')
    if name == member.filename:
      raise ValueError(
          f'{path}: {name!r} is not an array (.npy), so this zip archive is '
          'not an .npz.')
    if name in shapes:
      raise ValueError(f'{path}: the name {name!r} occurs twice.')
    shapes[name] = _shape(path, name, start, member.file_size)
  if not shapes:
    raise ValueError(f'{path}: the archive holds no array.')
  # The archive's directory has the checksum of each array.
  sums = sorted((member.filename, member.CRC) for member, _ in starts)
  return array_file.ArrayFile(
      path=str(path), format='npz', shapes=shapes,
      load=lambda name: _load(path, name),
      metadata={CHECKSUM: f'{zlib.crc32(repr(sums).encode()):08x}'})


check_complete = open_file  # Headers declare the length of a file.


def write(path: str | pathlib.Path, arrays: Mapping[str, Any]) -> None:
  """Writes arrays uncompressed."""
  with pathlib.Path(path).open('wb') as file:  # NumPy appends '.npz' to a path.
    np.savez(file, **arrays)  # type: ignore[arg-type]


def _shape(
    path: pathlib.Path, name: str, start: bytes, size: int,
) -> tuple[int, ...]:
  """Returns the shape in an array's header, after checking the header."""
  stream = io.BytesIO(start)
  try:
    shape, _, dtype = untrusted.read_npy_header(stream)
  # The header is a Python literal, whose parser raises many types.
  except Exception as error:
    raise ValueError(
        f'{path}: {name} is not an array that NumPy wrote: '
        f'{type(error).__name__}: {exceptions.first_line(error)}') from error
  if dtype.hasobject:
    raise ValueError(
        f'{path}: {name} is an array of Python objects, which could run any '
        'code when read. Weights are arrays of numbers.')
  wanted = stream.tell() + math.prod(shape) * dtype.itemsize
  if wanted != size or not all(type(n) is int and n >= 0 for n in shape):
    raise ValueError(
        f'{path}: {name} declares {shape} of {dtype}, {wanted:,} bytes, but '
        f'has {size:,}. The file is damaged.')
  return tuple(shape)


def _load(path: pathlib.Path, name: str) -> np.ndarray:
  with array_file.open_zip(path) as archive:
    return untrusted.parse_npy(archive.read(f'{name}.npy'))
