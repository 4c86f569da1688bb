"""Parsing of configs, config files, overrides and stages."""

import json
import pathlib
import re
import sys

import pytest

from tests import toy
from vit_jax import schema
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import config_file
from vit_jax.experiment import load_config

ROOT = pathlib.Path(__file__).parents[2]
SMALL = toy.config(
    total={'steps': 10}, evals={'test': {'every': {'epochs': 1}}})

FILE = """
from ml_collections import ConfigDict

def get_config(width: int = 8, rate: float = 1e-3, source: str = 'digits',
               augment: bool = False):
  return ConfigDict({
      'total': {'epochs': 2}, 'batch_size': 8,
      'model': {'width': width, 'depth': 1, 'mlp_dim': 16, 'num_heads': 2,
                'patch': 4},
      'data': {'source': source,
               'train_ops': [{'op': 'flip'}] if augment else []},
      'optimizer': {'name': 'adam', 'learning_rate': rate,
                    'schedule': {'name': 'cosine'}},
      'evals': {'test': {'every': {'epochs': 1}}},
  })
"""


@pytest.fixture
def file(tmp_path):
  path = tmp_path / 'configs' / 'one.py'
  path.parent.mkdir()
  path.write_text(FILE)
  return str(path)


STAGES = {
    'tune': {'init': {'stage': 'pretrain'}, 'total': {'steps': 3},
             'optimizer': {'name': 'sgd', 'learning_rate': 0.1,
                           'schedule': {'name': 'linear'}}},
    'pretrain': {'batch_size': 16, 'optimizer': {'beta1': 0.8}}}


@pytest.fixture
def stages(tmp_path):
  return toy.write(tmp_path / 'stages.py', stages=STAGES)


def load(specification, *overrides):
  return load_config.load(specification, overrides, open_weights=None)['']


def test_a_resolved_config_survives_json(tmp_path):
  config = config_lib.resolve(SMALL)
  plain = json.loads(json.dumps(config_lib.to_plain(config)))
  assert config_lib.resolve(plain) == config
  path = tmp_path / 'config.json'  # Another run may start with it.
  path.write_text(json.dumps(plain))
  assert load(str(path)) == config
  assert load(str(path), 'total.epochs=2').total == schema.Duration(epochs=2)
  assert plain['optimizer']['beta2'] == 0.999  # Defaults are saved.
  changed = config_lib.to_plain(config_lib.resolve({**SMALL, 'seed': 3}))
  difference, = config_file.differences(plain, changed)
  assert difference == (('seed',), 0, 3) and str(difference) == 'seed: 0 -> 3'
  assert config_file.differences(plain, plain) == []


def test_file_arguments_may_have_no_default(tmp_path):
  path = tmp_path / 'one.py'
  path.write_text(FILE.replace('width: int = 8', 'width: int'))
  assert load(f'{path}:width=16').model.width == 16


def test_a_file_without_get_config_is_an_error(tmp_path):
  path = tmp_path / 'one.py'
  path.write_text('config = {}\n')
  with pytest.raises(UserError, match=r'must define get_config\(\)'):
    load(str(path))


def test_file_arguments_have_the_types_of_their_defaults(file):
  config = load(f'{file}:width=16,rate=3,source=shapes,augment=true')
  assert config.model.width == 16
  assert config.optimizer.learning_rate == 3.0
  assert config.data.source == 'shapes'
  assert config.data.train_ops == ({'op': 'flip'},)


@pytest.mark.parametrize('package', ['configs', 'vit_jax.configs'])
def test_a_config_in_any_folder_extends_ours(package, tmp_path, monkeypatch):
  # As after `pip install`: the root of the repository is not on the path.
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [
      path for path in sys.path if pathlib.Path(path).resolve() not in (
          ROOT, tmp_path)])
  for name in [name for name in sys.modules
               if re.match(r'(vit_jax\.)?configs\b', name)]:
    monkeypatch.delitem(sys.modules, name)
  path = tmp_path / 'mine' / 'pets.py'
  path.parent.mkdir()
  path.write_text(f'from {package} import finetune\n\n'
                  'def get_config(dataset: str = "digits"):\n'
                  '  config = finetune.get_config(dataset=dataset)\n'
                  '  config.optimizer.learning_rate = 0.5\n'
                  '  config.data.num_workers = 0\n'  # Instead of auto.
                  '  return config\n')
  config = config_file.read('mine/pets.py:dataset=shapes')
  assert config['data']['source'] == 'shapes'
  assert config['optimizer']['learning_rate'] == 0.5
  assert config['data']['num_workers'] == 0


def test_overrides_change_values(file):
  config = load(file, 'optimizer.learning_rate=3e-4', 'model.depth=2',
                'data.source=shapes', 'model.final_norm=false', 'averaging=0.9')
  assert config.optimizer.learning_rate == 3e-4
  assert config.model.depth == 2
  assert config.data.source == 'shapes'
  assert config.model.final_norm is False
  assert config.averaging == 0.9
  assert load(file, 'total.steps=7').total == schema.Duration(steps=7)


def test_stages_share_common_values_and_follow_their_initial_stage(stages):
  loaded = load_config.load(stages)
  assert list(loaded) == ['pretrain', 'tune']
  assert loaded['pretrain'].batch_size == 16
  assert loaded['tune'].batch_size == 8
  assert loaded['pretrain'].optimizer.beta1 == 0.8
  assert loaded['pretrain'].optimizer.learning_rate == 1e-3
  assert loaded['tune'].optimizer.name == 'sgd'


def test_overrides_apply_to_all_stages_or_one(stages):
  loaded = load_config.load(
      stages, ['stages.tune.optimizer.learning_rate=0.5', 'batch_size=24'])
  assert {c.batch_size for c in loaded.values()} == {24}
  assert loaded['tune'].optimizer.learning_rate == 0.5
  assert loaded['pretrain'].optimizer.learning_rate == 1e-3


def test_a_stage_inherits_the_model_of_its_initial_stage(stages):
  overrides = [
      'stages.pretrain.model.gelu=exact', 'stages.pretrain.model.dropout=0.1',
      'stages.pretrain.model.pooling=average']
  model = load_config.load(stages, overrides)['tune'].model
  assert (model.gelu, model.pooling, model.dropout) == ('exact', 'average', 0)
  overrides.append('stages.tune.model.gelu=tanh')
  assert load_config.load(stages, overrides)['tune'].model.gelu == 'tanh'


def inherited(data, trained):
  return load_config.inherit(
      {'init': {'checkpoint': 'x'}, 'data': data},
      {'model': {'name': 'vit'}, 'data': trained})['data']


@pytest.mark.parametrize(('settings', 'expected'), [
    ({}, ([0.485, 0.456, 0.406], 0.25)), ({'mean': 0.5}, (0.5, 0.25)),
    ({'mean': 'measured', 'std': 'measured'}, ('measured', 'measured'))],
    ids=str)
def test_pixels_are_scaled_as_for_the_initial_weights(settings, expected):
  section = inherited(settings, {
      'mean': [0.485, 0.456, 0.406], 'std': [0.25, 0.25, 0.25]})
  assert (section['mean'], section['std']) == expected


def test_a_variant_replaces_earlier_dimensions(file):
  model = load(file, 'model.variant=Ti/16').model
  assert (model.width, model.depth, model.patch) == (192, 12, 16)
  assert load(file, 'model.variant=Ti/16', 'model.depth=3').model.depth == 3
  assert load(file, 'model.depth=3', 'model.variant=Ti/16').model.depth == 3


def test_changing_only_the_name_keeps_common_fields(file):
  config = load(file, 'optimizer.schedule.warmup.steps=3',
                'optimizer.beta1=0.5', 'optimizer.name=sgd',
                'optimizer.schedule.name=linear',
                'evals.test.split=train[90%:]', 'evals.test.name=knn')
  assert config.optimizer.name == 'sgd'
  assert config.optimizer.schedule.name == 'linear'
  assert config.optimizer.schedule.warmup == schema.Duration(steps=3)
  assert not hasattr(config.optimizer, 'beta1')
  assert config.evals['test'].split == 'train[90%:]'


def test_a_section_with_another_name_and_fields_is_replaced():
  merged = config_lib.merge(
      {'optimizer': {'name': 'adam', 'weight_decay': 0.3, 'beta1': 0.5}},
      {'optimizer': {'name': 'sgd', 'momentum': 0.5}})
  assert merged == {'optimizer': {'name': 'sgd', 'momentum': 0.5}}


def test_another_objective_keeps_the_fields_that_both_have():
  merged = config_lib.merge(
      {'objective': {'loss': 'sigmoid'}}, {'objective': {'name': 'flexivit'}})
  assert merged == {'objective': {'name': 'flexivit', 'loss': 'sigmoid'}}


@pytest.mark.parametrize('text', [
    '{}', '{"new": {"name": "knn", "every": null}}'])
def test_overrides_can_set_a_whole_section(file, text):
  config = load(file, f'evals={text}')
  assert list(config.evals) == (['new'] if 'new' in text else [])


@pytest.mark.parametrize(('key', 'new', 'expected'), [
    ('patient', {}, 'patient'), (None, {}, ''),
    ('patient', {'group': 'scene'}, 'scene')])
def test_configs_that_were_saved_with_a_former_key_of_groups_still_load(
    key, new, expected):
  saved = config_lib.to_plain(config_lib.resolve(SMALL))
  saved['data'] = {**saved['data'], 'table': {
      **saved['data']['table'], 'key': key}, 'eval_unreadable': 'auto',
                   'check_secs': 20.0, 'max_unreadable': 0.01}
  del saved['data']['group'], saved['data']['divided_groups']
  flags = [f'data.{name}={value}' for name, value in new.items()]
  assert config_lib.resolve_with(saved, flags).data.group == expected
