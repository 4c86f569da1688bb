"""The intervals 'auto' suit the length of a run and the size of its data."""

import jax
import pytest

from tests import toy
from vit_jax import schema
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib


@pytest.mark.parametrize(('steps', 'best', 'log', 'count'), [
    # An evaluation reads as many images, 360, as 45 steps.
    (5, False, 1, 1), (100, False, 10, 2), (100, True, 10, 1),
    (1000, True, 50, 10)])
def test_short_runs_log_ten_times_and_evaluate_no_more_images_than_they_train(
    steps, best, log, count):
  experiment = experiment_lib.build(config_lib.resolve(toy.config(
      total={'steps': steps},
      checkpoint={'best': 'test/accuracy' if best else ''},
      evals={'test': {'every': 'auto', 'batch_size': 120}, 'end': {}})),
      devices=jax.devices()[:1])
  config = experiment.config
  assert config.log.every == schema.Duration(steps=log)
  due = [step for step in range(1, steps + 1)
         if experiment.is_due(config.evals['test'].every, step)]
  assert len(due) == count and due[-1] == steps
  assert config.evals['end'].every is None
