"""The pickles of PyTorch (.pth, .pt, .bin), where torch is installed.

A pickle is a program. torch's `weights_only` loader runs the few instructions
that build tensors and refuses all others; there is no other way in here.
"""

import pathlib

import numpy as np

from vit_jax.interop import files

# A training script saves its state dict under one of these, often beside the
# optimizer's.
_NESTED = ('model_ema', 'state_dict_ema', 'model', 'state_dict')


def open_file(path: str | pathlib.Path) -> files.ArrayFile:
  """Reads a state dict.

  Raises:
    ValueError: if torch is not installed, or refuses the file.
  """
  path = pathlib.Path(path)
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
        f'{type(error).__name__}: {str(error).splitlines()[0]}') from error
  for key in _NESTED:
    if isinstance(found, dict) and isinstance(found.get(key), dict):
      found = found[key]
      break
  tensors = {
      name.removeprefix('module.'): tensor
      for name, tensor in (found.items() if isinstance(found, dict) else ())
      if isinstance(name, str) and isinstance(tensor, torch.Tensor)}
  if not tensors:
    raise ValueError(
        f'{path} holds no state dict: {type(found).__name__} was found where '
        'tensors by name were expected.')

  def load(name: str) -> np.ndarray:
    tensor = tensors[name].detach()
    if tensor.dtype == torch.bfloat16:
      tensor = tensor.float()
    return tensor.contiguous().numpy()

  headers = {
      name: files.Header(shape=tuple(tensor.shape),
                         dtype=str(tensor.dtype).removeprefix('torch.'))
      for name, tensor in tensors.items()}
  return files.ArrayFile(
      path=str(path), format='pytorch', headers=headers, load=load)
