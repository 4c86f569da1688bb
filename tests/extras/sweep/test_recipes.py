"""Sweeps have the learning rates of the paper."""

import pytest

from tests import test_recipes
from vit_jax.extras.sweep import grid as grid_lib

pytestmark = pytest.mark.slow  # It builds large models.


@pytest.mark.parametrize(('dataset', 'steps', 'rates', 'held_out'), [
    ('imagenet2012', 20_000, [0.003, 0.01, 0.03, 0.06], 1),
    ('cifar100', 10_000, [0.001, 0.003, 0.01, 0.03], 2),
    ('cifar10', 10_000, [0.001, 0.003, 0.01, 0.03], 2),
    ('oxford_iiit_pet', 500, [0.001, 0.003, 0.01, 0.03], 10),
    ('oxford_flowers102', 500, [0.001, 0.003, 0.01, 0.03], 10)])
def test_sweeps_match_table_4(dataset, steps, rates, held_out):
  sweep = grid_lib.plan(
      f'{test_recipes.CONFIGS}/finetune.py:model=B/16,dataset={dataset}')['']
  test_recipes.assert_settings(sweep.config, {
      'total.steps': steps, 'batch_size': 512, 'data.resolution': 384,
      'optimizer.name': 'sgd', 'optimizer.momentum': 0.9,
      'optimizer.weight_decay': 0, 'optimizer.clip_norm': 1,
      'optimizer.schedule.name': 'cosine', 'averaging': None})
  assert [p.config.optimizer.learning_rate for p in sweep.points] == rates
  assert sweep.section.seeds == 3
  for point in sweep.points:
    splits = point.development.data.split.split('+')
    assert {s[s.index('['):] for s in splits} == {f'[:{100 - held_out}%]'}
