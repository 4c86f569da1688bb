"""Grids over fields that determine other fields."""

import pathlib
import types

import pytest

from tests import toy
from vit_jax import sweep as sweep_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import load_config

ROOT = pathlib.Path(__file__).parents[2]
FINETUNE = f'{ROOT}/configs/finetune.py:dataset=digits,resolution=16'


def grid(**fields):
  return {name.replace('__', '.'): values for name, values in fields.items()}


def test_the_model_of_an_open_config_can_be_swept():
  sweep = sweep_lib.plan(
      FINETUNE, ['model.dropout=0.5'],
      grid=grid(model__variant=('Ti/16', 'S/16')))
  assert [p.config.model.width for p in sweep.points] == [192, 384]
  assert {p.config.model.dropout for p in sweep.points} == {0.5}
  assert [p.name for p in sweep.points] == ['variant=Ti-16', 'variant=S-16']


@pytest.fixture
def found(monkeypatch):
  """Two checkpoints of different widths; returns the ones that were read."""
  def find(checkpoint, **_):
    names.append(checkpoint)
    config = config_lib.resolve(toy.config(model={
        'width': {'/a': 8, '/b': 16}[checkpoint], 'gelu': 'exact'}))
    return types.SimpleNamespace(config=config_lib.to_plain(config))

  names = []
  monkeypatch.setattr(load_config.load_lib, 'find', find)
  return names


def test_initial_weights_can_be_swept(found):
  sweep = sweep_lib.plan(
      FINETUNE, grid=grid(init__checkpoint=('/a', '/b')))
  assert [p.config.model.width for p in sweep.points] == [8, 16]
  assert [p.config.init.checkpoint for p in sweep.points] == ['/a', '/b']
  assert {p.config.model.gelu for p in sweep.points} == {'exact'}


def test_swept_optimizers_keep_their_common_settings():
  sweep = sweep_lib.plan(
      FINETUNE, ['model.variant=Ti/16'],
      grid=grid(optimizer__name=('adam', 'sgd', 'adafactor'),
                optimizer__learning_rate=('0.5', '0.25')))
  found = [p.config.optimizer for p in sweep.points]
  assert [(o.name, o.learning_rate) for o in found] == [
      (name, rate) for name in ('adam', 'sgd', 'adafactor')
      for rate in (0.5, 0.25)]
  assert {o.clip_norm for o in found} == {1.0}
  assert {o.schedule.warmup.percent for o in found} == {5}


def test_weights_are_read_once_for_independent_fields(found):
  sweep = sweep_lib.plan(FINETUNE, ['init.checkpoint=/a'])
  assert len(sweep.points) == 4 and found == ['/a']
