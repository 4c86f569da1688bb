"""Reads text, strict JSON, and .npy files without pickle."""

import io
import json
import math
from typing import Any

from etils import epath
import numpy as np

from vit_jax import exceptions
from vit_jax.exceptions import UserError


def read_text(path: epath.PathLike, *, errors: str = 'strict') -> str:
  """Returns a text file; raises a UserError if it is not UTF-8."""
  try:
    # Spreadsheets write a BOM.
    return epath.Path(path).read_bytes().decode('utf-8-sig', errors)
  except UnicodeDecodeError as error:
    raise UserError(
        f'{path} is not UTF-8 text ({error}). Save it as UTF-8.') from error


def read_json(path: epath.PathLike) -> dict[str, Any]:
  """Returns the object in a JSON file.

  Raises:
    UserError: if the file is not JSON, or not an object.
  """
  with exceptions.within(f'{path} is not JSON'):
    found = parse_json(read_text(path))
  if not isinstance(found, dict):
    raise UserError(
        f'{path} must be a JSON object, but is {type(found).__name__}.')
  return found


def parse_json(text: str) -> Any:
  """Returns JSON data.

  Raises:
    UserError: if it is malformed or nested too deeply, or an object repeats a
      key, of which Python would silently keep the last.
  """
  try:
    return _JSON.decode(text)
  except RecursionError as error:
    raise UserError('it is nested too deeply') from error
  except ValueError as error:
    raise UserError(str(error)) from error


def read_npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
  """Returns shape, order and type of a .npy file; see `parse_npy`."""
  return _NPY_HEADERS[np.lib.format.read_magic(file)](file)


def parse_npy(data: bytes) -> np.ndarray:
  """Returns the array of a .npy file, which shares the memory of `data`.

  `np.load` would allocate what the header declares before it reads the file.
  Raises exceptions of many types for a damaged file or Python objects.
  """
  file = io.BytesIO(data)
  shape, is_fortran, dtype = read_npy_header(file)
  return np.frombuffer(data, dtype, math.prod(shape), file.tell()).reshape(
      shape, order='F' if is_fortran else 'C')


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  found: dict[str, Any] = {}
  for key, value in pairs:
    if key in found:
      raise UserError(
          f'it has the key {key!r} twice: {found[key]!r:.60} and {value!r:.60}')
    found[key] = value
  return found


_JSON = json.JSONDecoder(object_pairs_hook=_without_repetition)
_NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0}
