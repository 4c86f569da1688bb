"""Files of other codebases, with random weights."""

import json

import numpy as np

from tests import random_models
from vit_jax.extras.zoo import safetensors
from vit_jax.extras.zoo import save as save_lib
from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import records
from vit_jax.weights.formats import npz


def arrays(family, resolution=(32, 32), **settings):
  """Returns the arrays of a tiny model under a family's names."""
  return save_lib.to_arrays(
      families.FAMILIES[family], random_models.params(
          random_models.config_of(**settings), resolution))


def write(path, family, found=None, **settings):
  """Writes arrays in the format of a family, and returns the path."""
  form = npz if family in ('npz', 'bit', 'resnet') else safetensors
  form.write(path, arrays(family, **settings) if found is None else found)
  return path


def write_folder(folder, family, config, processor=None, **settings):
  """Writes weights with config.json and perhaps the file of a processor."""
  write(folder / 'model.safetensors', family, **settings)
  (folder / 'config.json').write_text(json.dumps(config))
  if processor is not None:
    (folder / 'preprocessor_config.json').write_text(json.dumps(processor))
  return folder


def labels(count=5, start=0):
  return {str(i): f'class {i}' for i in range(start, start + count)}


def under(prefix, found):
  return {prefix + name: array for name, array in found.items()}


def with_zeros(found, shapes):
  return {**found, **{name: np.zeros(shape, np.float32)
                      for name, shape in shapes.items()}}


def registers(side, *, embedded, num):
  """Returns timm's arrays of a model with registers, and our parameters.

  Args:
    side: of the images of the position embeddings, or height and width.
    embedded: whether class token and registers have position embeddings.
    num: number of registers.
  """
  size = tuple(np.broadcast_to(side, 2).tolist())
  settings = {'registers': num, 'position_cls': embedded}
  expected = random_models.params(random_models.config_of(**settings), size)
  found = arrays('timm', size, **settings)
  if embedded:
    offsets = np.full((1, num, 12), 0.5, np.float32)
    cls, patches = np.split(found['pos_embed'], [1], axis=1)
    found['pos_embed'] = np.concatenate([cls, offsets, patches], axis=1)
    expected['registers'] = expected['registers'] + offsets[0]
  return found, expected


# Settings of `arrays('dinov3')`.
DINOV3 = {
    'layer_scale': 1.0, 'num_classes': 0, 'position': 'none', 'registers': 4,
    'key_bias': False, 'width': 16, 'num_heads': 2,
    'rotary': records.DINOV3_ROTARY}
# Files config.json for `arrays('huggingface')` and `arrays('timm')`.
HUGGINGFACE_CONFIG = {
    'model_type': 'vit', 'architectures': ['ViTForImageClassification'],
    'hidden_size': 12, 'num_hidden_layers': 2, 'num_attention_heads': 3,
    'intermediate_size': 20, 'image_size': 32, 'patch_size': 8,
    'qkv_bias': True, 'hidden_act': 'gelu_new', 'layer_norm_eps': 1e-7,
    'id2label': labels()}
TIMM_CONFIG = {
    'architecture': 'vit_tiny_patch16_224', 'num_classes': 5,
    'num_features': 12, 'global_pool': 'token', 'model_args': {
        'img_size': 32, 'embed_dim': 12, 'depth': 2, 'num_heads': 3,
        'mlp_ratio': 20.5 / 12, 'patch_size': 8, 'act_layer': 'gelu_tanh'},
    'pretrained_cfg': {'mean': [0.1, 0.2, 0.3], 'input_size': [3, 32, 32]}}
