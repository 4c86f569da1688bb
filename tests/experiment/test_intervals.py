"""The intervals 'auto' suit the length of a run and the size of its data."""

import jax
import pytest

from tests import toy
from vit_jax import schema
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib


@pytest.mark.parametrize(('steps', 'log', 'percent'), [
    # An evaluation of 360 images computes as much as 15 steps of 8 images.
    (5, 1, 100), (100, 10, 15), (1000, 50, 10)])
def test_short_runs_log_and_evaluate_ten_times_and_mostly_train(
    steps, log, percent):
  experiment = experiment_lib.build(config_lib.resolve(toy.config(
      total={'steps': steps},
      evals={'test': {'every': 'auto', 'batch_size': 120}, 'end': {}})),
      devices=jax.devices()[:1])
  config = experiment.config
  assert config.log.every == schema.Duration(steps=log)
  assert config.evals['test'].every.percent == pytest.approx(percent)
  assert config.evals['end'].every is None
