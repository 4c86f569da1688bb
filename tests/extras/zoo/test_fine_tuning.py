"""Models of other codebases are fine-tuned."""


import jax
import numpy as np
import pytest

from tests import random_models
from tests import toy
from tests.experiment.test_config import file  # noqa: F401
from vit_jax import tree
from vit_jax.experiment import fit_weights
from vit_jax.experiment import load_config
from vit_jax.extras.zoo import safetensors
from vit_jax.extras.zoo import save as save_lib
from vit_jax.extras.zoo.families import families
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import open as open_lib


def test_fine_tuning_interpolates_positions_as_the_code_of_the_weights(
    tmp_path):
  section = {**random_models.TINY, 'gelu': 'exact', 'num_classes': 10}
  model = random_models.make(section, side=16)
  arrays = save_lib.to_arrays(
      families.FAMILIES['timm'], tree.flatten(model.params))
  safetensors.write(tmp_path / 'x.safetensors', arrays)
  found = open_lib.open(tmp_path / 'x.safetensors', num_heads=2)
  built = toy.build(model=section, data={'resolution': 32})
  params, _ = fit_weights.fit(
      built, found, rules=adapt_lib.InitConfig(ignored=()))
  np.testing.assert_allclose(
      params['positions'], model.config.resize_positions(
          'positions', np.asarray(model.params['positions']), old_grid=(2, 2),
          new_grid=(4, 4), method='cubic'), rtol=1e-5)


def test_a_variant_has_the_heads_that_the_weights_declare(
    file, tmp_path):  # noqa: F811
  random_models.make(
      {'variant': 'Ti/16', 'depth': 1, 'num_heads': 12, 'num_classes': 2},
      side=16).save(tmp_path / 'weights', form='timm')
  overrides = [f'init.checkpoint={tmp_path}/weights', 'model.variant=Ti/16']
  with pytest.raises(ValueError, match=(
      'Ti/16 has num_heads=3, but the weights declare num_heads=12')):
    load_config.load(file, overrides)
  stages = load_config.load(file, [*overrides, 'model.num_heads=3'])
  assert stages[''].model.num_heads == 3


@pytest.mark.slow  # Trains.
def test_the_distillation_token_and_its_head_learn(tmp_path):
  teacher = random_models.save_near_initial(
      tmp_path / 'teacher', num_classes=10, resolution=8, width=8, depth=1,
      num_heads=2, mlp_dim=16, patch=4)
  built = toy.build(model={'distill_token': True}, objective={
      'name': 'distill', 'teacher': str(teacher), 'weight': 0.5})
  state = built.init_state()
  initial = jax.device_get(tree.flatten(state.params))
  batches = built.batches(start_step=0)
  for _ in range(2):  # The heads start at zero.
    state, _ = built.train_step(state, next(batches))
  final = tree.flatten(state.params)
  for name in ('head/dense/kernel', 'head/distill/kernel', 'distill'):
    assert np.abs(final[name] - initial[name]).max() > 1e-4, name
