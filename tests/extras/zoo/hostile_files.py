"""Readers of weights of other codebases, for `tests.fuzz`."""

import importlib.util
import io

from tests import fuzz
from tests.extras.zoo import zoo_models
from vit_jax.extras.zoo import safetensors


def readers():
  """Returns the readers by name."""
  in_folder = lambda path: fuzz.read_weights(path.parent)
  arrays = zoo_models.arrays('huggingface')
  file = fuzz.weights_file(safetensors, arrays)
  shards = {'metadata': {},
            'weight_map': dict.fromkeys(arrays, 'x.safetensors')}
  found = {
      'safetensors': fuzz.Reader('x.safetensors', fuzz.read_weights, [file]),
      'config': fuzz.Reader(
          'config.json', in_folder, [
              fuzz.text(zoo_models.HUGGINGFACE_CONFIG),
              fuzz.text(zoo_models.TIMM_CONFIG)], {'model.safetensors': file}),
      'index': fuzz.Reader(
          'model.safetensors.index.json', in_folder, [fuzz.text(shards)],
          {'x.safetensors': file})}
  if importlib.util.find_spec('torch'):
    import torch
    stream = io.BytesIO()
    torch.save({name: torch.from_numpy(value) for name, value in
                zoo_models.arrays('timm').items()}, stream)
    found['pytorch'] = fuzz.Reader(
        'x.pth', fuzz.read_weights, [stream.getvalue()])
  return found
