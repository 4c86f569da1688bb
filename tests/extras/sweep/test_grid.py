"""Grids over fields that determine other fields, and soups of their runs."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest

from tests import random_models
from tests import test_recipes
from tests import toy
from vit_jax import schema
from vit_jax.experiment import config as config_lib
from vit_jax.extras.sweep import config as sweep_config
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import soup
from vit_jax.extras.sweep import sweep as sweep_lib
from vit_jax.weights import open as open_lib

ROOT = pathlib.Path(__file__).parents[3]
FINETUNE = (
    f'{ROOT}/configs/finetune.py:dataset=digits,resolution=16,method=full')


def test_the_model_of_an_open_config_can_be_swept():
  sweep = grid_lib.plan(
      FINETUNE, ['model.dropout=0.5'],
      grid={'model.variant': ('Ti/16', 'S/16')})['']
  assert [p.config.model.width for p in sweep.points] == [192, 384]
  assert {p.config.model.dropout for p in sweep.points} == {0.5}
  assert [p.name for p in sweep.points] == ['variant=Ti-16', 'variant=S-16']


@pytest.fixture
def found(monkeypatch):
  """Two checkpoints of different widths; returns the ones that were read."""
  def find(checkpoint, **_):
    names.append(checkpoint)
    config = config_lib.to_plain(config_lib.resolve(toy.config(model={
        'width': {'/a': 8, '/b': 16}[checkpoint], 'gelu': 'exact'})))
    return dataclasses.replace(
        random_models.make_tiny(), run=config, kind='params')

  names = []
  monkeypatch.setattr(open_lib, 'open', find)
  return names


def test_initial_weights_can_be_swept(found):
  sweep = grid_lib.plan(FINETUNE, grid={'init.checkpoint': ('/a', '/b')})['']
  assert [p.config.model.width for p in sweep.points] == [8, 16]
  assert [p.config.init.checkpoint for p in sweep.points] == ['/a', '/b']
  assert {p.config.model.gelu for p in sweep.points} == {'exact'}


def test_swept_optimizers_keep_their_common_settings():
  sweep = grid_lib.plan(
      FINETUNE, ['model.variant=Ti/16'],
      grid={'optimizer.name': ('adam', 'sgd', 'adafactor'),
            'optimizer.learning_rate': (0.5, 0.25)})['']
  found = [p.config.optimizer for p in sweep.points]
  assert [(o.name, o.learning_rate) for o in found] == [
      (name, rate) for name in ('adam', 'sgd', 'adafactor')
      for rate in (0.5, 0.25)]
  assert {o.clip_norm for o in found} == {1.0}
  assert {o.schedule.warmup.percent for o in found} == {5}


def test_weights_are_read_once(found):
  sweep = grid_lib.plan(FINETUNE, ['init.checkpoint=/a'])['']
  assert len(sweep.points) == 4 and found == ['/a']
  found.clear()
  sweep = grid_lib.plan(FINETUNE, ['init.checkpoint=/a'], grid={
      'model.dropout': (0.1, 0.2)})['']
  assert [p.config.model.dropout for p in sweep.points] == [0.1, 0.2]
  assert {p.config.model.width for p in sweep.points} == {8}
  assert found == ['/a']


def test_a_range_is_expanded_to_log_spaced_values():
  section = sweep_config.SweepConfig(grid={'a': ('log:0.001:0.1:3', 0.5)})
  assert section.grid == {'a': (0.001, 0.01, 0.1, 0.5)}
  sweep = grid_lib.plan(FINETUNE, ['model.variant=Ti/16'], grid={
      'optimizer.learning_rate': (schema.FlagText('log:3e-4:3e-2:2'),)})['']
  assert [p.name for p in sweep.points] == [
      'learning_rate=0.0003', 'learning_rate=0.03']


@pytest.mark.parametrize(('values', 'best', 'warning'), [
    ((0.01, 0.03, 0.1), 0.1, 'a=0.1 is the largest value'),
    ((0.1, 0.01), 0.01, 'a=0.01 is the smallest value'),
    ((0.01, 0.03, 0.1), 0.03, ''), ((0.0, 0.2), 0.0, ''),
    ((0.1,), 0.1, ''), (('adam', 'sgd'), 'sgd', ''), ((False, True), True, '')])
def test_a_best_value_at_the_edge_of_the_grid_is_a_warning(
    values, best, warning):
  found = sweep_lib.edges({
      'grid': [{'values': {'a': v}, 'value': v == best} for v in values],
      'best': {'values': {'a': best}, 'value': True}})
  assert len(found) == bool(warning)
  assert all(re.search(warning, one) for one in found)


def test_a_tie_with_another_value_is_no_warning():
  rows = [{'values': {'a': a}, 'value': value}
          for a, value in enumerate((0.9, 0.9, 0.8))]
  assert sweep_lib.edges({'grid': rows, 'best': rows[0]}) == []


RUNS = {'a': 4.0, 'b': 8.0, 'c': -9.0, 'd': 3.0}


def average(evaluate):
  params, members = soup.average(
      list(RUNS), lambda name: {'x': np.float32([RUNS[name]])}, evaluate)
  return params['x'].item(), members


def test_a_run_joins_a_greedy_soup_only_if_it_is_not_worse():
  assert average(None) == (1.5, list(RUNS))  # A uniform soup: their mean.
  seen = []

  def evaluate(params):
    seen.append(params['x'].item())
    return -abs(params['x'].item() - 5.5)

  mean, members = average(evaluate)
  assert members == ['a', 'b', 'd'] and mean == 5.0
  assert seen == [4.0, 6.0, 1.0, 5.0]
  # Not a number is worse than any value.
  mean, members = average(
      lambda params: float('nan') if params['x'] > 4 else 1.0)
  assert members == ['a', 'c', 'd'] and mean == pytest.approx(-2 / 3)


@pytest.mark.slow  # It builds large models.
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
