"""Our own checkpoints are believed no more than the files of others."""

import dataclasses
import json

import jax
import ml_dtypes
import numpy as np
import pytest

from vit_jax import models
from vit_jax import tree
from vit_jax.inference import load as load_lib
from vit_jax.inference import model as model_lib
from vit_jax.weights import convert
from vit_jax.weights import save as save_lib
from vit_jax.weights.configs import preprocessing as preprocessing_lib

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
STEP = 'checkpoints/latest/0'


def make(cast=np.float32, **settings):
  config = models.parse({**TINY, **settings})
  rng = np.random.default_rng(0)
  params = jax.tree.map(
      lambda s: (8 * rng.normal(size=s.shape)).astype(cast),
      convert.abstract_params(config, (32, 32)))
  return model_lib.Model(
      config=config, params=params, resolution=(32, 32),
      preprocess=preprocessing_lib.Preprocess(
          resolution=(32, 32), labels=tuple('abcde')))


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  path = tmp_path_factory.mktemp('run') / 'x'
  make().save(path)
  return path


def load(path, **given):
  return load_lib.load(path, log=None, **given)


@pytest.mark.parametrize(('given', 'words'), [
    ({'nonsense': 1}, "Unknown override 'nonsense'"),
    ({'num_head': 2}, "Did you mean 'num_heads'"),
    ({'mean': (1, 2)}, 'mean must be one number, or three'),
    ({'std': 'x'}, "std must be float, but is 'x'"),
    ({'std': 0}, 'std must be positive'),
    ({'labels': ['a', 'b']}, '2 labels, but the head has 5 classes'),
    ({'resolution': 33}, 'resolution: .*33x33 does not divide into patches'),
    ({'resolution': 'x'}, "number of pixels, or .height, width., but is 'x'"),
    ({'variant': 'B/16'}, 'width: expected 768, found 12'),
    ({'variant': 'R50x1'}, "name: expected 'resnet', found 'vit'"),
    ({'num_classes': 0}, 'num_classes: expected 0, found 5'),
    ({'num_heads': 4}, 'num_heads: expected 4, found 2'),
    ({'patch': 16}, 'patch: expected 16, found 8'),
    ({'depth': 3}, 'depth: expected 3, found 2'),
    ({'qkv_bias': False}, 'qkv_bias: expected False, found True'),
    ({'pooling': 'attention'}, "expected 'attention', found no learned query"),
    ({'position': '2d'}, "position: expected '2d', found 'learned'"),
    ({'registers': 2}, 'registers: expected 2, found 0'),
    ({'backbone': {'depths': (3, 4)}}, 'backbone: expected .* found None'),
    ({'prefix': 'x'}, "prefix='x' says which copy"),
    ({'which': 'zzz'}, "Unknown which checkpoint 'zzz'. .*latest, best")])
def test_what_a_checkpoint_denies_is_an_error(given, words, run):
  with pytest.raises(ValueError, match=words):
    load(run, **given)


def test_what_may_be_said_wins(run):
  model = load(run, mean=0.25, std=[2], resolution=(64, 32), gelu='exact',
               layer_norm_epsilon=1e-5, pooling='average', num_heads=2,
               labels=list('vwxyz'))
  assert model.preprocess == preprocessing_lib.Preprocess(
      resolution=(64, 32), mean=(0.25,) * 3, std=(2.0,) * 3,
      labels=tuple('vwxyz'))
  # The positions stay what they are, and so does the class token.
  assert model.resolution == (32, 32)
  assert (model.config.gelu, model.config.layer_norm_epsilon) == (
      'exact', 1e-5)
  assert (model.config.pooling, model.config.has_cls) == ('average', True)


def test_a_part_of_a_backbone_may_be_said(tmp_path):
  make(backbone={'depths': (1, 2), 'width': 32}, patch=1).save(tmp_path / 'x')
  epsilon = load(
      tmp_path / 'x', backbone={'group_norm_epsilon': 1e-3}).config.backbone
  assert epsilon.group_norm_epsilon == 1e-3
  assert (epsilon.depths, epsilon.width) == ((1, 2), 32)
  with pytest.raises(ValueError, match='backbone: expected .*found .*32'):
    load(tmp_path / 'x', backbone={'width': 64})


@pytest.mark.parametrize('dtype', [np.float16, ml_dtypes.bfloat16])
def test_other_floats_are_read_as_float32(dtype, tmp_path):
  model = make(dtype)
  model.save(tmp_path / 'x')
  want = tree.flatten(model.params)
  for name, array in tree.flatten(load(tmp_path / 'x').params).items():
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, want[name].astype(np.float32))


@pytest.fixture
def unchecked(monkeypatch, tmp_path):
  """Saves what another program may have written, but `save` refuses to."""
  def save(model):
    with monkeypatch.context() as patch:
      patch.setattr(save_lib.files, 'to_float32', lambda array, **_: array)
      model.save(tmp_path / 'x')
    return tmp_path / 'x'

  return save


def test_integers_are_no_parameters(unchecked):
  path = unchecked(make(np.int32))
  with pytest.raises(ValueError, match=f'{STEP}: .* has dtype int32, but a '
                     'parameter must be float32'):
    load(path)


def test_what_is_not_finite_is_named(unchecked):
  model = make()
  model.params['cls'][:] = np.nan
  path = unchecked(model)
  with pytest.raises(ValueError, match=f'{STEP}: cls holds 12 of 12 values'):
    load(path)


def without(*names):
  return lambda config: [config.pop(name) for name in names]


@pytest.mark.parametrize(('damage', 'words'), [
    (lambda c: c.update(model=[1]), r'config.model must be a section'),
    (lambda c: c['model'].update(zzz=1), 'Unknown key model.zzz'),
    (lambda c: c['model'].update(width=-1), 'width cannot be negative'),
    (lambda c: c['model'].update(name=[1]), 'model.name'),
    (lambda c: c['model'].update(backbone=[1]), 'model.backbone'),
    (lambda c: c.update(preprocess=[1]), r'config.preprocess must be'),
    (lambda c: c['preprocess'].update(mean=[1, 2]), 'mean must be one number'),
    (lambda c: c['preprocess'].update(std=[1, 1, 0]), 'std must be positive'),
    (lambda c: c['preprocess'].update(labels=['a']), '1 labels, but .* 5 clas'),
    (lambda c: c['preprocess'].update(width=3), 'Unknown key preprocess.width'),
    (lambda c: c.update(data='x'), 'config.data must be a section'),
    (lambda c: (c.pop('preprocess'), c['data'].update(eval_ops=3)), 'int'),
    (without('preprocess', 'resolution', 'data'), 'needs the key.*resolution'),
    (lambda c: c.update(resolution='x'), "config.resolution must .* is 'x'"),
    (lambda c: c.update(resolution=[]), r'config.resolution must .* is \[\]'),
    (lambda c: c.update(resolution=0), 'resolution must .* is 0'),
    (lambda c: c.update(resolution=33), '33x33 does not divide'),
    (lambda c: c['preprocess'].update(resolution=33), '33x33 does not divide'),
    (lambda c: c.update(positions='zzz'), "config.positions is 'zzz'")])
def test_a_malformed_config_is_one_error_that_names_the_checkpoint(
    damage, words, tmp_path):
  make().save(tmp_path / 'x')
  file = tmp_path / 'x' / STEP / 'config/metadata'
  config = json.loads(file.read_text())
  damage(config)
  file.write_text(json.dumps(config))
  with pytest.raises(ValueError, match=f'(?s){tmp_path}/x/{STEP}.* not '
                     f'understood: .*{words}'):
    load(tmp_path / 'x')


@pytest.mark.parametrize('form', save_lib.FORMATS)
@pytest.mark.parametrize(('value', 'words'), [
    (np.float32(np.nan), 'cls holds 12 of 12 values that are NaN or infinite'),
    (np.float64(1e300), 'cls holds 12 of 12 values'),
    (np.int32(1), 'cls has dtype int32')])
def test_what_cannot_be_read_again_is_not_written(
    form, value, words, tmp_path):
  model = make()
  params = {**model.params, 'cls': np.full((1, 12), value)}
  with pytest.raises(ValueError, match=f'The model: {words}'):
    dataclasses.replace(model, params=params).save(tmp_path / 'x', form=form)
  assert not list(tmp_path.iterdir())
