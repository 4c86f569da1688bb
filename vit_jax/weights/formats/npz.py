"""Reads and writes .npz files; the published weights are in this format.

`numpy.load` would allocate whatever a header declares. This reader checks every
header against the archive first, and never unpickles.
"""

from collections.abc import Mapping
import functools
import math
import os
import pathlib
from typing import Any
import zipfile
import zlib

import numpy as np

from vit_jax import untrusted
from vit_jax.weights.formats import array_file

CHECKSUM = 'checksum'  # Key of the metadata.


def open_file(path: str | os.PathLike) -> array_file.ArrayFile:
  """Opens an .npz file and reads its headers.

  Raises:
    ValueError: if the file is truncated, holds anything but arrays of numbers,
      or declares more than it contains.
  """
  path = pathlib.Path(path)
  shapes: dict[str, tuple[int, ...]] = {}
  with array_file.open_zip(path) as archive:
    for member in archive.infolist():
      with archive.open(member) as stream:
        shapes[member.filename.removesuffix('.npy')] = _shape(member, stream)
    # The archive's directory has the checksum of each array.
    sums = sorted((m.filename, m.CRC) for m in archive.infolist())
  return array_file.ArrayFile(
      path=str(path), format='npz', shapes=shapes,
      load=functools.partial(_load, path),
      metadata={CHECKSUM: f'{zlib.crc32(repr(sums).encode()):08x}'})


def write(path: str | pathlib.Path, arrays: Mapping[str, Any]) -> None:
  """Writes arrays uncompressed."""
  with pathlib.Path(path).open('wb') as file:  # NumPy appends '.npz' to a path.
    np.savez(file, **arrays)  # type: ignore[arg-type]


def _shape(member: zipfile.ZipInfo, stream: Any) -> tuple[int, ...]:
  """Returns the shape in an array's header, after checking the header."""
  try:
    shape, _, dtype = untrusted.read_npy_header(stream)
  # The header is a Python literal, whose parser raises many types.
  except Exception as error:
    raise ValueError(
        f'{member.filename} is not an array that NumPy wrote') from error
  if dtype.hasobject:
    raise ValueError(
        f'{member.filename} is an array of Python objects, which could run any '
        'code when read')
  wanted = stream.tell() + math.prod(shape) * dtype.itemsize
  if wanted != member.file_size or min(shape, default=0) < 0:
    raise ValueError(
        f'{member.filename} declares {shape} of {dtype}, {wanted:,} bytes, but '
        f'has {member.file_size:,}')
  return shape


def _load(path: pathlib.Path, name: str) -> np.ndarray:
  with array_file.open_zip(path) as archive:
    return untrusted.parse_npy(archive.read(f'{name}.npy'))
