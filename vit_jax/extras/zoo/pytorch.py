"""Reads PyTorch state dicts (.pth, .pt, .bin), if torch is installed.

Unpickling runs code. torch's `weights_only` loader runs only the instructions
that build tensors, and is the only one used here.
"""

from collections.abc import Mapping
import pathlib
from typing import Any

import numpy as np

from vit_jax.exceptions import UserError
from vit_jax.weights.formats import array_file

_MAX_DEPTH = 16  # Dicts inside of each other.


def open_file(path: str | pathlib.Path) -> array_file.ArrayFile:
  """Reads the tensors of a state dict, or of dicts in any nesting.

  Keys of nested dicts are parts of the names: 'teacher.backbone.cls_token'.

  Raises:
    UserError: if the file is damaged or a zip bomb, torch is not installed,
      or torch refuses the file.
  """
  path = pathlib.Path(path)
  _check_archive(path)
  try:
    import torch
  except ImportError as error:
    raise UserError(
        f'{path} is a PyTorch pickle, which only torch can read safely, but '
        'torch is not installed. Install it (pip install torch), or get the '
        'weights as .safetensors.') from error
  try:
    found = torch.load(str(path), map_location='cpu', weights_only=True)
  except Exception as error:  # Its unpickler raises many types.
    # torch's own message advises to trust the file.
    raise UserError(
        f'torch cannot read {path} with weights_only ({type(error).__name__}): '
        'it contains more than tensors, or is damaged. Get its state dict, or '
        '.safetensors.') from error
  tensors = named_tensors(path, found, torch.Tensor)
  # A tensor may repeat one number by a stride of 0.
  array_file.check_unpacked(path, sum(
      t.numel() * t.element_size() for t in tensors.values()))

  def load(name: str) -> np.ndarray:
    tensor = tensors[name].detach()
    if tensor.dtype == torch.bfloat16:
      tensor = tensor.float()
    try:
      return tensor.contiguous().numpy()
    except (TypeError, RuntimeError) as error:
      raise UserError(
          f'{path}: {name} is a {tensor.layout} tensor of {tensor.dtype}, but '
          'a parameter must be a dense array of floats.') from error

  shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
  return array_file.ArrayFile(
      path=str(path), format='pytorch', shapes=shapes, load=load)


def check_complete(path: pathlib.Path) -> None:
  """Raises a UserError if the zip archive of torch.save is truncated.

  Older state dicts are not archives, and do not declare their length.
  """
  if _is_archive(path):
    with array_file.open_zip(path):
      pass


def _check_archive(path: pathlib.Path) -> None:
  """Raises if the zip archive of torch.save is damaged or a zip bomb.

  torch itself compares no checksums.
  """
  if _is_archive(path):
    with array_file.open_zip(path) as archive:
      if damaged := archive.testzip():
        raise UserError(f'the checksum of {damaged} differs')


def _is_archive(path: pathlib.Path) -> bool:
  with path.open('rb') as file:
    return file.read(2) == b'PK'  # torch < 1.6 writes none.


def named_tensors(
    path: pathlib.Path, found: Any, tensor: type,
) -> dict[str, Any]:
  """Returns the tensors in nested dicts, by the keys that lead to them.

  Args:
    path: the file, for errors.
    found: its content.
    tensor: type of a tensor.

  Raises:
    UserError: if there are none, or two of one name.
  """
  tensors: dict[str, Any] = {}
  visited = set()  # A dict may contain itself, or another one many times.
  stack = [('', found, 0)]
  while stack:
    name, value, depth = stack.pop()
    if isinstance(value, tensor):
      if name in tensors:
        raise UserError(f'{path} holds two tensors of the name {name}.')
      tensors[name] = value
    elif (isinstance(value, Mapping) and id(value) not in visited
          and depth < _MAX_DEPTH):
      visited.add(id(value))
      stack += [(f'{name}.{key}' if name else key, inner, depth + 1)
                for key, inner in reversed([*value.items()])
                if isinstance(key, str)]
  if not tensors:
    raise UserError(
        f'{path} holds no state dict: expected tensors by name, found '
        f'{type(found).__name__}.')
  return tensors
