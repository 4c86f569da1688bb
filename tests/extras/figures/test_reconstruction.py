"""Pictures of the targets of masked patches, and of reconstructed images."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.objectives import test_mae
from vit_jax import objectives
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.extras.figures import reconstruction
from vit_jax.objectives import patch_targets


@pytest.mark.parametrize('target', [
    'mean_color', 'downsampled', 'patch', 'normalized'])
def test_pictures_of_the_targets_are_the_patches(target):
  rng = np.random.default_rng(1)
  patches = jnp.asarray(
      rng.integers(0, 256, (2, 5, 4, 8, 3)) / 255, jnp.float32)
  context = objectives.Context(None, value_scale=value_scale_lib.ValueScale(
      test_mae.MEAN, test_mae.STD))
  targets = patch_targets.compute(target, patches, context)
  outputs = targets
  if target in patch_targets.SIDES:
    outputs = jax.nn.one_hot(targets, 512).reshape(2, 5, -1)
  assert outputs.shape[-1] == patch_targets.num_outputs(target, (4, 8, 3))
  picture = reconstruction.to_pixels(target, outputs, patches, context)
  if target in patch_targets.SIDES:
    np.testing.assert_array_equal(
        patch_targets.compute(target, picture, context), targets)
  else:
    np.testing.assert_allclose(picture, patches, atol=1e-5)


def test_reconstructions_change_masked_patches_only():
  objective, _, params = test_mae.build()
  drawn = objective.draw(test_mae.ARRAY, test_mae.KEY)
  same, grey, predicted = jax.device_get(jax.jit(functools.partial(
      reconstruction.reconstruct, objective._config, objective._context))(
          params, test_mae.PIXELS, test_mae.KEY))
  np.testing.assert_array_equal(same, test_mae.PIXELS)
  for image in range(3):
    for place in range(6):
      original = test_mae.patch_at(test_mae.PIXELS, image, place)
      masked = test_mae.patch_at(grey, image, place)
      new = test_mae.patch_at(predicted, image, place)
      if place in drawn['visible'][image]:
        np.testing.assert_array_equal(masked, original)
        np.testing.assert_array_equal(new, original)
      else:
        np.testing.assert_array_equal(masked, 0.5)
        assert np.abs(new - original).max() > 1e-4
