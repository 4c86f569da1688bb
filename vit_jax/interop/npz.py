"""The .npz of NumPy: the published weights, read without trusting them.

`numpy.load` would unpickle object arrays if allowed to, and would allocate
whatever a header asks for. Here every header is read and checked against the
archive first.
"""

from collections.abc import Mapping
import math
import pathlib
import struct
from typing import Any
import zipfile
import zlib

import numpy as np
from numpy.lib import format as npy_format

from vit_jax.interop import files

MAX_HEADER_BYTES = 2**16

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, struct.error,
           NotImplementedError)


def open_file(path: str | pathlib.Path) -> files.ArrayFile:
  """Opens an .npz file and reads its headers.

  Raises:
    ValueError: if the file is truncated, holds objects, or declares more than
      it can hold.
  """
  path = pathlib.Path(path)
  try:
    with zipfile.ZipFile(path) as archive:
      members = archive.infolist()
      files.check_unpacked(path, sum(m.file_size for m in members))
      headers = {}
      for member in members:
        name = member.filename.removesuffix('.npy')
        if name == member.filename:
          raise ValueError(
              f'{path}: {name!r} is no array (.npy); this is a zip archive of '
              'something else, not an .npz.')
        if name in headers:
          raise ValueError(f'{path}: the name {name!r} occurs twice.')
        headers[name] = _header(path, archive, member)
  except _BROKEN as error:
    raise _truncated(path, error) from error
  if not headers:
    raise ValueError(f'{path}: the archive holds no array.')
  return files.ArrayFile(
      path=str(path), format='npz', headers=headers,
      load=lambda name: _load(path, name))


def write(path: str | pathlib.Path, arrays: Mapping[str, Any]) -> None:
  """Writes arrays as NumPy does, uncompressed."""
  with pathlib.Path(path).open('wb') as file:  # Else '.npz' may be appended.
    # By position: a parameter may be called `file`.
    with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED) as archive:
      for name, array in arrays.items():
        with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
          npy_format.write_array(
              member, np.ascontiguousarray(array), allow_pickle=False)


def _header(
    path: pathlib.Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo,
) -> files.Header:
  name = member.filename.removesuffix('.npy')
  with archive.open(member) as stream:
    try:
      version = npy_format.read_magic(stream)
      read = {(1, 0): npy_format.read_array_header_1_0,
              (2, 0): npy_format.read_array_header_2_0}[version]
      shape, _, dtype = read(stream, max_header_size=MAX_HEADER_BYTES)
    except (ValueError, KeyError) as error:
      raise ValueError(
          f'{path}: {name} is not an array that NumPy wrote: {error}'
      ) from error
    start = stream.tell()
  if dtype.hasobject:
    raise ValueError(
        f'{path}: {name} is an array of Python objects. Reading it could run '
        'any code, so it is not read; weights are arrays of numbers.')
  if min(shape, default=0) < 0:
    raise ValueError(f'{path}: {name} declares the shape {shape}.')
  wanted = start + math.prod(shape) * dtype.itemsize
  if wanted != member.file_size:
    raise ValueError(
        f'{path}: {name} declares {files.as_text(shape)} of {dtype}, which '
        f'takes {wanted:,} bytes, but {member.file_size:,} are there. The file '
        'is damaged.')
  return files.Header(
      shape=tuple(shape),
      dtype=dtype.str if dtype.kind == 'V' else dtype.name)


def _load(path: pathlib.Path, name: str) -> np.ndarray:
  try:
    with zipfile.ZipFile(path) as archive:
      with archive.open(f'{name}.npy') as stream:
        array = npy_format.read_array(stream, allow_pickle=False)
        stream.read(1)  # The end: only now the checksum is compared.
        return array
  except (*_BROKEN, ValueError) as error:
    raise _truncated(path, error) from error


def _truncated(path: pathlib.Path, error: Exception) -> ValueError:
  return ValueError(
      f'{path} is truncated or damaged: {type(error).__name__}: {error}. '
      'Copy or download it again.')
