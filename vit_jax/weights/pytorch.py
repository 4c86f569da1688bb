"""Reads PyTorch state dicts (.pth, .pt, .bin), if torch is installed.

Unpickling runs code. torch's `weights_only` loader runs only the instructions
that build tensors, and is the only one used here.
"""

from collections.abc import Mapping
import pathlib
from typing import Any

import numpy as np

from vit_jax.weights import files

# Keys under which training scripts save the state dict and its moving average.
_NESTED = ('model', 'state_dict', 'model_ema', 'state_dict_ema')
_PARALLEL = 'module.'  # Prefix of names saved from DataParallel.


def open_file(path: str | pathlib.Path) -> files.ArrayFile:
  """Reads a state dict.

  If a file has several, names begin with 'model.', 'model_ema.' and so on.

  Raises:
    ValueError: if the file is damaged or a zip bomb, torch is not installed,
      or torch refuses the file.
  """
  path = pathlib.Path(path)
  _check_archive(path)
  try:
    import torch
  except ImportError as error:
    raise ValueError(
        f'{path} is a PyTorch pickle, which only torch can read safely, but '
        'torch is not installed. Install it (pip install torch), or get the '
        'weights as .safetensors.') from error
  try:
    found = torch.load(str(path), map_location='cpu', weights_only=True)
  except Exception as error:  # Its unpickler raises many types.
    # torch's own message advises to trust the file.
    raise ValueError(
        f'torch cannot read {path} with weights_only ({type(error).__name__}): '
        'it contains more than tensors, or is damaged. Get its state dict, or '
        '.safetensors.') from error
  tensors = _state_dict(path, found, torch.Tensor)
  # A tensor may repeat one number by a stride of 0.
  files.check_unpacked(path, sum(
      t.numel() * t.element_size() for t in tensors.values()))

  def load(name: str) -> np.ndarray:
    tensor = tensors[name].detach()
    if tensor.dtype == torch.bfloat16:
      tensor = tensor.float()
    try:
      return tensor.contiguous().numpy()
    except (TypeError, RuntimeError) as error:
      raise ValueError(
          f'{path}: {name} is a {tensor.layout} tensor of {tensor.dtype}, but '
          'a parameter must be a dense array of floats.') from error

  shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
  return files.ArrayFile(
      path=str(path), format='pytorch', shapes=shapes, load=load)


def _check_archive(path: pathlib.Path) -> None:
  """Raises if the zip archive of torch.save is damaged or a zip bomb.

  torch itself compares no checksums.
  """
  with path.open('rb') as file:
    is_archive = file.read(2) == b'PK'  # torch < 1.6 writes none.
  if is_archive:
    with files.open_zip(path) as archive:
      if damaged := archive.testzip():
        raise ValueError(f'the checksum of {damaged} differs')


def _state_dict(
    path: pathlib.Path, found: Any, tensor: type,
) -> dict[str, Any]:
  """Returns tensors by name."""
  def named(value: Any) -> dict[str, Any]:
    items = value.items() if isinstance(value, Mapping) else ()
    tensors = {name: value for name, value in items
               if isinstance(name, str) and isinstance(value, tensor)}
    if all(name.startswith(_PARALLEL) for name in tensors):
      return {n.removeprefix(_PARALLEL): t for n, t in tensors.items()}
    return tensors

  nested = {key: inner for key in _NESTED if isinstance(found, Mapping)
            and (inner := named(found.get(key)))}
  if len(nested) > 1:
    return {f'{key}.{name}': value for key, inner in nested.items()
            for name, value in inner.items()}
  tensors = next(iter(nested.values()), None) or named(found)
  if not tensors:
    raise ValueError(
        f'{path} holds no state dict: expected tensors by name, found '
        f'{type(found).__name__}.')
  return tensors
