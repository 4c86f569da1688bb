"""Evaluators average predictions for images and their mirror images."""

import jax
import numpy as np
import pytest

from tests import toy
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib

SECTION = {'split': 'test[:24]', 'batch_size': 24}


def _losses(**section):
  experiment = experiment_lib.build(config_lib.resolve(toy.config(
      evals={'plain': SECTION, 'flipped': {**SECTION, 'flip': True}},
      data=section)), devices=jax.devices()[:1])
  rng = np.random.default_rng(0)  # The initial head is zero.
  params = jax.tree.map(
      lambda x: x + rng.normal(scale=0.3, size=x.shape).astype(x.dtype),
      experiment.init_state().params)
  return {name: evaluator(params)['loss']
          for name, evaluator in experiment.evaluators.items()}


def test_mirroring_all_images_does_not_change_flipped_evaluations():
  upright = _losses()
  mirrored = _losses(eval_ops=[
      {'op': 'resize'}, {'op': 'flip', 'probability': 1.0}])
  assert upright['flipped'] == pytest.approx(mirrored['flipped'], rel=1e-6)
  assert upright['plain'] != pytest.approx(mirrored['plain'], rel=1e-6)


def test_the_training_objective_cannot_be_averaged():
  with pytest.raises(ValueError, match=r'evals\.test\.flip averages predict'):
    experiment_lib.build(config_lib.resolve(toy.config(evals={
        'test': {'name': 'objective', 'flip': True}})),
                         devices=jax.devices()[:1])
