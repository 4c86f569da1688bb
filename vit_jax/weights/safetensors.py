"""Reads and writes .safetensors files, the format of timm and Hugging Face."""

from collections.abc import Mapping
import json
import pathlib
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from vit_jax.weights import files

_DTYPES = {'F64': 'float64', 'F32': 'float32', 'F16': 'float16',
           'BF16': 'bfloat16', 'I64': 'int64', 'I32': 'int32', 'I16': 'int16',
           'I8': 'int8', 'U8': 'uint8', 'BOOL': 'bool'}


def open_file(path: str | pathlib.Path) -> files.ArrayFile:
  """Opens a .safetensors file and reads its header.

  Raises:
    ValueError: if the file is truncated or contradicts its header.
  """
  path = pathlib.Path(path)
  try:
    with safetensors.safe_open(str(path), framework='numpy') as file:
      slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
      headers = {name: files.Header(
          shape=tuple(found.get_shape()),
          dtype=_DTYPES.get(found.get_dtype(), found.get_dtype()))
                 for name, found in slices.items()}
      metadata = dict(file.metadata() or {})
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(
        f'{path} is truncated or damaged: {error}. Copy or download it again.'
    ) from error
  if not headers:
    raise ValueError(f'{path}: the file holds no array.')
  starts = _offsets(path)

  def load(name: str) -> np.ndarray:
    header = headers[name]
    begin, end = starts[name]
    dtype = np.dtype(ml_dtypes.bfloat16 if header.dtype == 'bfloat16'
                     else header.dtype)
    with path.open('rb') as stream:
      stream.seek(begin)
      return np.frombuffer(
          stream.read(end - begin), dtype).reshape(header.shape)

  return files.ArrayFile(path=str(path), format='safetensors', headers=headers,
                         load=load, metadata=metadata)


def write(
    path: str | pathlib.Path, arrays: Mapping[str, Any], *,
    metadata: Mapping[str, str] | None = None,
) -> None:
  """Writes arrays, and `format: pt`, which PyTorch's libraries require.

  Args:
    path: of the file.
    arrays: by name.
    metadata: text for the file's header.
  """
  path = pathlib.Path(path)
  path.touch()
  mode = path.stat().st_mode  # The library creates it unreadable for others.
  safetensors.numpy.save_file(
      {name: np.ascontiguousarray(array) for name, array in arrays.items()},
      str(path), metadata={'format': 'pt', **(metadata or {})})
  path.chmod(mode)


def _offsets(path: pathlib.Path) -> dict[str, tuple[int, int]]:
  """Returns the byte range of each array in a file verified by the library.

  The library's NumPy reader does not support bfloat16.
  """
  with path.open('rb') as file:
    length = int.from_bytes(file.read(8), 'little')
    header = json.loads(file.read(length))
  return {name: tuple(8 + length + n for n in entry['data_offsets'])
          for name, entry in header.items() if name != '__metadata__'}
