"""The advice table lists settings that are possible and not yet used."""

import typing

import pytest

from tests import toy
from vit_jax.experiment import config as config_lib
from vit_jax.models import resnet_config
from vit_jax.models import vit_config
from vit_jax.plan import advice

CONFIG = toy.config(
    batch_size=64, accumulation=1, model={'width': 24, 'remat': 'attention'})


def suggestions(cost, **changes):
  config = config_lib.resolve({**CONFIG, **changes})
  return [override for override, _ in advice.suggest(config, cost)]


def test_cheap_settings_are_suggested_first(fake_cost):
  assert suggestions(fake_cost(44.0)) == [
      'optimizer.momentum_dtype=bfloat16', 'mesh.fsdp=8',
      'model.remat=dots', 'model.remat=full', 'accumulation=auto',
      'batch_size=32']


def test_settings_in_use_are_not_suggested(fake_cost):
  rows = suggestions(
      fake_cost(44.0, mesh=(1, 8, 1)), accumulation='auto',
      model={**CONFIG['model'], 'remat': 'full'},
      optimizer={**CONFIG['optimizer'], 'momentum_dtype': 'bfloat16'})
  assert rows == ['batch_size=32']


def test_fsdp_divides_the_width_and_leaves_explicit_meshes(fake_cost):
  model = {**CONFIG['model'], 'width': 12}
  assert 'mesh.fsdp=4' in suggestions(fake_cost(44.0), model=model)
  assert 'mesh.fsdp=8' not in suggestions(fake_cost(44.0), mesh={'data': 8})


def test_the_excess_and_flags_are_printed(fake_cost, capsys):
  cost = fake_cost(44.0, 15.0)
  config = config_lib.resolve(CONFIG)
  advice.show(list(advice.suggest(config, cost)), cost)
  output = capsys.readouterr().out
  assert 'needs 44.0 GiB per device, 29.0 GiB more' in ' '.join(output.split())
  assert '--config.model.remat=full' in output


@pytest.mark.parametrize('config', [
    vit_config.ViTConfig, resnet_config.ResNetConfig])
def test_every_remat_level_has_a_cost(config):
  levels = typing.get_args(typing.get_type_hints(config)['remat'])
  assert set(levels) == {'none', *advice.REMAT_COST}


def test_momentum_is_rounded_only_where_there_is_one(fake_cost):
  key = 'optimizer.momentum_dtype=bfloat16'
  sgd = {'name': 'sgd', 'learning_rate': 0.1,
         'schedule': CONFIG['optimizer']['schedule']}
  assert key in suggestions(fake_cost(44.0), optimizer=sgd)
  for settings in ({'momentum': 0.0}, {'name': 'optax.rmsprop'}):
    assert key not in suggestions(
        fake_cost(44.0), optimizer={**sgd, **settings})
