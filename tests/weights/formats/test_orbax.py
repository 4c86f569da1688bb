"""Checkpoints of our runs are loaded with the checks of other files."""

import shutil

import pytest

from tests import leaves
from tests import random_models
from vit_jax import registry
from vit_jax.data import preprocessing
from vit_jax.inference import load as load_lib
from vit_jax.weights import open as open_lib

STEP = 'checkpoints/latest/0'


def make(**settings):
  return random_models.make(
      {**random_models.TINY, **settings}, side=32, labels=tuple('abcde'))


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  path = tmp_path_factory.mktemp('run') / 'x'
  make().save(path)
  return path


def load(path, **given):
  return load_lib.load(path, log=None, **given)


def test_a_new_run_sees_the_class_names_of_a_saved_model(run):
  assert open_lib.open(run).preprocess.labels == tuple('abcde')


@pytest.mark.parametrize(('given', 'words'), [
    ({'labels': ['a', 'b']}, 'holds 2 names .* but the model has 5 classes'),
    ({'resolution': 33}, '33x33 does not divide into patches'),
    *[({'patch': 6}, '32x32 does not divide into patches of 6x6')]
    * leaves.has(registry.PATCH),
    ({'variant': 'B/16'}, 'variant: the weights declare their model'),
    ({'num_heads': 4}, 'qkv_bias: expected .* found'),
    ({'prefix': 'x'}, "prefix='x' selects one of several copies")])
def test_an_override_that_contradicts_a_checkpoint_is_an_error(
    given, words, run):
  with pytest.raises(ValueError, match=f'(?s){words}'):
    load(run, **given)


def test_overrides_take_precedence(run):
  model = load(run, mean=0.25, std=[2], resolution=(64, 32), gelu='exact',
               layer_norm_epsilon=1e-5, pooling='average', num_heads=2,
               labels=list('vwxyz'))
  assert model.preprocess == preprocessing.Preprocess(
      resolution=(64, 32), mean=(0.25,) * 3, std=(2.0,) * 3,
      labels=tuple('vwxyz'))
  # Position embeddings and the class token stay.
  assert model.resolution == (32, 32)
  assert (model.config.gelu, model.config.layer_norm_epsilon) == ('exact', 1e-5)
  assert (model.config.pooling, model.config.has_cls) == ('average', True)


@pytest.mark.parametrize(('damage', 'words'), [
    (lambda c: c.update(preprocess=[1]), 'config.preprocess must be'),
    (lambda c: c['model'].update(zzz=1), 'Unknown key model.zzz'),
    (lambda c: c['preprocess'].update(labels=['a']), '1 labels, but .* 5 clas'),
    (lambda c: (c.pop('preprocess'), c.update(
        data={'eval_ops': 3, 'resolution': 32})), 'must be a list, but is 3'),
    (lambda c: [c.pop(k) for k in ('preprocess', 'resolution')],
     'needs the key.*resolution'),
    (lambda c: c.update(resolution=33), '33x33 does not divide'),
    # Values of types that no setting has.
    (lambda c: c.update(init=3), 'config.init must be a section'),
    (lambda c: c['model'].update(name=['vit']), 'Unknown model.name'),
    (lambda c: c['preprocess'].update(ops=[3]), r'ops.0. must be a section'),
    (lambda c: c['preprocess'].update(mean=[[1], [1, 2]]), 'mean.0. must be'),
    (lambda c: c['preprocess'].update(channels='3'), 'channels must be int')])
def test_a_malformed_config_is_one_error_that_names_the_checkpoint(
    damage, words, run, tmp_path):
  shutil.copytree(run, tmp_path / 'x')
  random_models.edit_config(tmp_path / 'x' / STEP, damage)
  with pytest.raises(ValueError, match=f'(?s){tmp_path}/x/{STEP}: '
                     f'.*{words}'):
    load(tmp_path / 'x')


def test_positions_of_a_run_are_resized_as_its_config_says(run, tmp_path):
  shutil.copytree(run, tmp_path / 'x')
  random_models.edit_config(
      tmp_path / 'x' / STEP,
      lambda config: config.update(init={'positions': 'cubic'}))
  assert load(tmp_path / 'x').positions == 'cubic'
