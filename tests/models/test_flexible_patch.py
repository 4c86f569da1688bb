"""A model with another patch size than that of its parameters (FlexiViT)."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_models
from vit_jax import tree
from vit_jax.models import factory
from vit_jax.models import positions as positions_lib


def logits(model, flat, images):
  params = tree.unflatten(
      {name: jnp.asarray(array) for name, array in flat.items()})
  return model.apply({'params': params}, images)['logits']


@pytest.mark.parametrize('settings', [
    {}, {'registers': 2, 'position_cls': False}, {'position': 'sincos'},
    {'rotary': {'reference': 4}, 'position': 'none', 'num_heads': 3}], ids=str)
def test_another_patch_size_computes_what_resized_parameters_do(
    settings, patch=16):
  config = random_models.config_of(**settings)
  flat = random_models.params(config, (48, 32))
  images = jnp.asarray(np.random.default_rng(1).normal(
      size=(2, 48, 32, 3)), 'float32')
  flexible = factory.build(config, num_classes=5, patch=patch)
  shapes = tree.flatten(random_models.shapes_of(flexible, images))
  assert {n: s.shape for n, s in shapes.items()} == {
      n: array.shape for n, array in flat.items()}
  found = logits(flexible, flat, images)
  resized = {
      **flat, 'patches/kernel': positions_lib.resize_filters(
          flat['patches/kernel'], (patch, patch))}
  if 'positions' in flat:
    resized['positions'] = positions_lib.resize_positions(
        flat['positions'], old_grid=(6, 4),
        new_grid=(48 // patch, 32 // patch), method='bilinear')
  fixed = factory.build(
      random_models.config_of(**settings, patch=patch), num_classes=5)
  np.testing.assert_allclose(
      found, logits(fixed, resized, images), rtol=1e-4, atol=1e-4)


def test_positions_of_every_layer_cannot_be_resized_in_training():
  with pytest.raises(ValueError, match='patch_sizes need .* to the stem'):
    factory.parse({**random_models.TINY, 'patch_sizes': (4, 8),
                  'position_at': 'layers'})
