"""Flax captures the outputs of all modules for all scan settings."""

import flax.linen as nn
import jax
import numpy as np
import pytest

from vit_jax import models
from vit_jax import tree

IMAGES = jax.random.normal(jax.random.key(0), (2, 16, 16, 3))
TINY = {'width': 16, 'depth': 2, 'mlp_dim': 32, 'num_heads': 2, 'patch': 8}


@pytest.mark.parametrize('settings', [
    {}, {'remat': 'full'}, {'remat': 'dots'}, {'unroll': 2}])
def test_flax_captures_the_output_of_every_module_of_every_layer(settings):
  model = models.build(models.parse({**TINY, **settings}), num_classes=5)
  params = nn.unbox(models.init(model, jax.random.key(0), IMAGES))
  outputs, captured = model.apply(
      {'params': params}, IMAGES, capture_intermediates=True,
      mutable=['intermediates'])
  shapes = {name.split('/__call__')[0]: leaf.shape for name, leaf in
            tree.flatten(captured['intermediates']).items()}
  layers = 'encoder/layers'
  assert shapes[f'{layers}/attention_norm'] == (2, 2, 5, 16)
  assert shapes[f'{layers}/attention/out'] == (2, 2, 5, 16)
  assert shapes[f'{layers}/mlp/hidden'] == (2, 2, 5, 32)
  assert shapes[f'{layers}/mlp/out'] == (2, 2, 5, 16)
  assert shapes['patches'] == (2, 2, 2, 16)
  plain = model.apply({'params': params}, IMAGES)
  np.testing.assert_array_equal(outputs['logits'], plain['logits'])
