"""Reads and writes .safetensors files, the format of timm and Hugging Face."""

from collections.abc import Mapping
import pathlib
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from vit_jax.weights.formats import array_file


def open_file(path: str | pathlib.Path) -> array_file.ArrayFile:
  """Opens a .safetensors file and reads its header.

  Of tied arrays, safetensors.torch writes one; the metadata map the names of
  the others to its name.

  Raises:
    ValueError: if the file is truncated or contradicts its header.
  """
  path = pathlib.Path(path)
  with array_file.intact(path), safetensors.safe_open(path, 'numpy') as file:
    shapes = {name: tuple(file.get_slice(name).get_shape())
              for name in file.keys()}  # noqa: SIM118
    metadata = dict(file.metadata() or {})
  if not shapes:
    raise ValueError(f'{path}: the file holds no array.')
  tied = {name: kept for name, kept in metadata.items()
          if name not in shapes and kept in shapes}

  def load(name: str) -> np.ndarray:
    with array_file.intact(path), safetensors.safe_open(path, 'numpy') as file:
      return file.get_tensor(tied.get(name, name))

  return array_file.ArrayFile(
      path=str(path), format='safetensors', shapes=shapes, load=load,
      metadata=metadata, tied=tied)


def write(
    path: str | pathlib.Path, arrays: Mapping[str, Any], *,
    metadata: Mapping[str, str] | None = None,
) -> None:
  """Writes arrays, and `format: pt`, which PyTorch's libraries require."""
  path = pathlib.Path(path)
  path.touch()
  mode = path.stat().st_mode  # The library creates it unreadable for others.
  safetensors.numpy.save_file(
      {name: np.ascontiguousarray(array) for name, array in arrays.items()},
      str(path), metadata={'format': 'pt', **(metadata or {})})
  path.chmod(mode)
