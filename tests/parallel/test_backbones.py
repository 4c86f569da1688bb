"""Components of current backbones train alike on any mesh."""

import jax
import numpy as np
import pytest

from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

CONFIG = {
    'total': {'steps': 2}, 'batch_size': 8,
    'model': {'width': 32, 'depth': 2, 'mlp_dim': 64, 'num_heads': 4,
              'patch': 4, 'gelu': 'exact'},
    'data': {'source': 'digits', 'resolution': 8},
    'optimizer': {'name': 'sgd', 'learning_rate': 0.3,
                  'schedule': {'name': 'constant'}}}
MODELS = {
    'DINOv3': {
        'rotary': {'coordinates': 'normalized', 'base': 100, 'halves': True},
        'mlp': 'swiglu', 'position': 'none', 'registers': 4, 'key_bias': False,
        'layer_scale': 0.1, 'pooling': 'average', 'cls': True},
    'EVA-02-CLIP': {'rotary': {'reference': 16}, 'mlp': 'swiglu',
                    'inner_norm': 'both', 'key_bias': False},
    'RoPE-ViT mixed': {'rotary': {'learned': True, 'base': 10}},
    'Perception Encoder': {
        'rotary': {'reference': 4, 'offset': 1.0}, 'stem_norm': 'tokens',
        'pooling': 'attention', 'cls': True, 'pool_prefix': True,
        'pool_heads': 8, 'gelu': 'quick'},
    'AIMv2': {'norm': 'rms', 'mlp': 'swiglu', 'proj_bias': False,
              'qkv_bias': False, 'stem_norm': 'patches', 'pooling': 'average'}}


def losses(model, mesh, **settings):
  built = experiment_lib.build(config_lib.resolve({
      **CONFIG, 'mesh': mesh, 'model': {
          **CONFIG['model'], **MODELS[model], **settings}}),
      devices=jax.devices()[:int(np.prod(list(mesh.values())))])
  state, batches, found = built.init_state(), built.batches(start_step=0), []
  for _ in range(2):
    state, loss = built.train_step(state, next(batches))
    found.append(float(loss))
  batches.close()
  return found


@pytest.mark.slow  # Compiles ten training steps.
@pytest.mark.parametrize('model', MODELS)
def test_losses_depend_neither_on_the_mesh_nor_on_unrolling(model):
  expected = losses(model, {'data': 1})
  assert expected[0] != expected[1]
  np.testing.assert_allclose(
      losses(model, {'data': 2, 'fsdp': 2, 'tensor': 2}, unroll=2), expected,
      rtol=1e-5)
