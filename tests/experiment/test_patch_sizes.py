"""Each training step draws one of `model.patch_sizes` (FlexiViT)."""

import jax
import numpy as np
import pytest

from tests import toy
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

STEPS = 6


def build(*sizes, devices=1, **changes):
  return experiment_lib.build(
      config_lib.resolve(toy.config(
          model={'patch_sizes': sizes}, total={'steps': STEPS}, **changes)),
      devices=jax.devices()[:devices])


def losses(experiment, steps, state):
  """Returns the losses of some steps, and the state after them."""
  found = []
  for _, batch in zip(steps, experiment.batches(start_step=steps[0])):
    state, loss = experiment.train_step(state, batch)
    found.append(float(loss))
  return found, state


@pytest.mark.slow  # Compiles two steps.
def test_the_sizes_are_the_same_after_resuming_and_on_several_devices():
  experiment = build(2, 4)
  whole, _ = losses(experiment, range(STEPS), experiment.init_state())
  experiment = build(2, 4, devices=2, accumulation=2)
  first, state = losses(experiment, range(3), experiment.init_state())
  rest, _ = losses(experiment, range(3, STEPS), state)
  np.testing.assert_allclose([*first, *rest], whole, rtol=1e-4)


def test_images_must_divide_into_every_size():
  with pytest.raises(ValueError, match='patch_sizes: .* patches of 3x3'):
    build(3, 4)


def test_masked_patches_have_one_size():
  with pytest.raises(ValueError, match='patch_sizes is .* have one size'):
    build(2, 4, objective={'name': 'masked_patch'})
