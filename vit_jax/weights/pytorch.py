"""The pickles of PyTorch (.pth, .pt, .bin), where torch is installed.

A pickle is a program. torch's `weights_only` loader runs the few instructions
that build tensors and refuses all others; there is no other way in here.
"""

from collections.abc import Mapping
import pathlib
import re
from typing import Any
import zipfile

import numpy as np

from vit_jax.weights import files

# A training script saves its state dict under one of these, often beside the
# optimizer's; some save a moving average of it as well.
_NESTED = ('model', 'state_dict', 'model_ema', 'state_dict_ema')
_CHUNK_BYTES = 2**20
_PARALLEL = 'module.'  # Before every name, if trained on several devices.


def open_file(path: str | pathlib.Path) -> files.ArrayFile:
  """Reads a state dict.

  Where a file has several, the names of each begin with what it is called
  there: 'model.' and 'model_ema.'.

  Raises:
    ValueError: if the file is cut short or a bomb, torch is not installed, or
      it refuses the file.
  """
  path = pathlib.Path(path)
  _check_archive(path)
  try:
    import torch
  except ImportError as error:
    raise ValueError(
        f'{path} is a pickle of PyTorch, which only torch can read safely, and '
        'torch is not installed. Install it (pip install torch), or ask for '
        'the same weights as .safetensors.') from error
  try:
    found = torch.load(str(path), map_location='cpu', weights_only=True)
  # Its unpickler raises whatever it meets: to a user each means the same.
  except Exception as error:
    raise ValueError(
        f'{path} is not a file of weights that torch reads with weights_only: '
        f'{_reason(error)}') from error
  tensors = _state_dict(path, found, torch.Tensor)
  # A tensor may be one number, repeated by a stride of 0.
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

  headers = {
      name: files.Header(shape=tuple(tensor.shape),
                         dtype=str(tensor.dtype).removeprefix('torch.'))
      for name, tensor in tensors.items()}
  return files.ArrayFile(
      path=str(path), format='pytorch', headers=headers, load=load)


def _check_archive(path: pathlib.Path) -> None:
  """Raises if what torch.save zipped is damaged, or unpacks to too much.

  What torch writes is not compressed, but what it reads may be. It reads past
  the checksums; they are compared here, but for those of 0, which it writes
  where `set_crc32_options` tells it to compute none.
  """
  with path.open('rb') as file:
    if file.read(2) != b'PK':
      return  # A file of torch before 1.6, which has no compression.
  try:
    with zipfile.ZipFile(path) as archive:
      members = archive.infolist()
  except Exception as error:  # Whatever zipfile meets in it.
    raise _damaged(path, error) from error
  files.check_unpacked(path, sum(member.file_size for member in members))
  try:
    with zipfile.ZipFile(path) as archive:
      for member in members:
        if member.CRC:
          with archive.open(member) as stream:
            while stream.read(_CHUNK_BYTES):
              pass  # At the end, the checksum is compared.
  except Exception as error:
    raise _damaged(path, error) from error


def _damaged(path: pathlib.Path, error: Exception) -> ValueError:
  return ValueError(
      f'{path} is truncated or damaged: {type(error).__name__}: {error}. '
      'Copy or download it again.')


def _reason(error: Exception) -> str:
  """Returns what torch met, without its advice to trust the file."""
  text = str(error)
  # Trying to load unsupported GLOBAL posix.system whose module is blocked.
  asked = re.search(r'GLOBAL ([\w.]+)', text)
  if asked:
    return (f'it asks for {asked[1]}, but weights need tensors alone. Ask for '
            'its state dict, or for .safetensors.')
  first = next(iter(text.splitlines()), '')
  if 'weights_only' in text:
    first = 'it asks for more than tensors.'
  return f'{type(error).__name__}: {first}'


def _state_dict(
    path: pathlib.Path, found: Any, tensor: type,
) -> dict[str, Any]:
  """Returns tensors by name.

  Raises:
    ValueError: if there are none, or two of one name.
  """
  def named(held: Any) -> dict[str, Any]:
    items = held.items() if isinstance(held, Mapping) else ()
    return {name: value for name, value in items
            if isinstance(name, str) and isinstance(value, tensor)}

  nested = {key: inner for key in _NESTED if isinstance(found, Mapping)
            and (inner := named(found.get(key)))}
  if len(nested) > 1:
    return {f'{key}.{name}': value for key, inner in nested.items()
            for name, value in _without_parallel(inner).items()}
  tensors = _without_parallel(*nested.values() or [named(found)])
  if not tensors:
    raise ValueError(
        f'{path} holds no state dict: {type(found).__name__} was found where '
        'tensors by name were expected.')
  return tensors


def _without_parallel(tensors: Mapping[str, Any]) -> dict[str, Any]:
  if not all(name.startswith(_PARALLEL) for name in tensors):
    return dict(tensors)
  return {name.removeprefix(_PARALLEL): t for name, t in tensors.items()}
