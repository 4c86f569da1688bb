"""The model of masked patch prediction."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from vit_jax.models import factory
from vit_jax.models import masked_patch

SECTION = {'width': 16, 'depth': 1, 'num_heads': 2, 'mlp_dim': 32, 'patch': 4,
           'num_classes': 5}
IMAGES = jnp.asarray(
    np.random.default_rng(0).normal(size=(2, 8, 8, 3)), jnp.float32)


def init(model):
  return jax.jit(lambda: nn.unbox(
      factory.init(model, jax.random.key(0), IMAGES)))()


@pytest.mark.parametrize(('section', 'decoder'), [
    pytest.param({'name': 'ablation', 'cls': True, 'pooling': 'attention',
                  'position_at': 'layers'}, None, marks=pytest.mark.slow),
    ({}, factory.parse({**SECTION, 'width': 8, 'depth': 1}))],
    ids=['', 'decoder'])
def test_vit_outputs_and_parameter_names_are_unchanged(section, decoder):
  config = factory.parse({**SECTION, **section})
  vit = factory.build(config, num_classes=5)
  model = masked_patch.MaskedPatch(config, 7, decoder)
  params, plain = init(model), init(vit)
  assert set(params) - set(plain) == {'masked_patch'}
  assert set(params['masked_patch']) == {'mask', 'prediction'} | (
      {'embed', 'decoder'} if decoder else set())
  jax.tree.map(np.testing.assert_array_equal,
               {name: params[name] for name in plain}, plain)
  got = jax.jit(model.apply)({'params': params}, IMAGES)
  want = jax.jit(vit.apply)({'params': plain}, IMAGES)
  assert got.pop('predictions').shape == (2, 4, 7)
  random_models.assert_close(got, want, rtol=1e-5)
