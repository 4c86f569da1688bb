"""Forward passes at any batch size and resolution."""

import numpy as np

from tests import random_models
from vit_jax.models import positions as positions_lib


def images(*shape):
  return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def test_any_batch_size_and_resolution_is_accepted():
  model = random_models.make_tiny()
  outputs = model(images(3, 32, 32, 3))
  assert outputs['logits'].shape == (3, 5)
  assert outputs['representation'].shape == (3, 12)
  assert outputs['tokens'].shape == (3, 17, 12)
  assert model(images(1, 48, 16, 3))['tokens'].shape == (1, 13, 12)
  # Images are independent of each other.
  np.testing.assert_allclose(
      model(images(3, 32, 32, 3)[1:2])['logits'], outputs['logits'][1:2],
      rtol=1e-5, atol=1e-5)


def test_resolutions_share_all_parameters_but_interpolated_positions():
  model = random_models.make_tiny()
  params_for = model.params_for
  seen = [params_for((32, 8 * n)) for n in range(1, 8)]
  kernels = {id(params['patches']['kernel']) for params in seen}
  assert len(kernels) == 1
  assert [len(params['positions']) for params in seen] == [
      4 * n + 1 for n in range(1, 8)]
  np.testing.assert_array_equal(
      params_for((48, 16))['positions'], positions_lib.resize_positions(
          model.params['positions'], old_grid=(4, 4), new_grid=(6, 2),
          method='cubic'))
