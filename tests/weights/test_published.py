"""Published .npz files open without the zoo, and exactly, or not at all."""

import json

import numpy as np
import pytest
import safetensors.numpy

from tests import random_models
import vit_jax
from vit_jax import registry
from vit_jax.models import factory
from vit_jax.models import variants
from vit_jax.weights import inferred
from vit_jax.weights import open as open_lib
from vit_jax.weights.formats import npz

HYBRID_ROOT = {**random_models.HYBRID, 'patch': 2,
               'backbone': {'depths': (), 'width': 32}}
RESNET_V1 = {**random_models.RESNET, 'backbone': {
    'depths': (1, 2), 'width': 32}}
BIT = {**random_models.RESNET, 'backbone': {
    **random_models.RESNET['backbone'], 'group_norm_epsilon': 1e-5,
    'std_epsilon': 0.0, 'variance_epsilon': 1e-10}}
MODELS = {
    'cls': ('npz', {}), 'average': ('npz', {'pooling': 'average'}),
    'MAP head': ('npz', {'pooling': 'attention'}),
    'representation': ('npz', {'representation_layer': True}),
    'no head': ('npz', {'num_classes': 0}),
    'oblong patches': ('npz', {'patch': (8, 4), 'pooling': 'average'}),
    'R50+B/16': ('npz', random_models.HYBRID), 'R+Ti/16': ('npz', HYBRID_ROOT),
    'BiT': ('bit', BIT), 'ResNet v1': ('resnet', RESNET_V1)}


@pytest.fixture(autouse=True)
def no_zoo(monkeypatch):
  for name in ('FOREIGN', 'EARLIER'):
    monkeypatch.setattr(registry, name, 'vit_jax.no_zoo')
  monkeypatch.setitem(registry.WEIGHT_FORMATS, 'timm', 'vit_jax.no_zoo')


@pytest.mark.parametrize('name', MODELS)
def test_a_published_file_is_a_model_of_the_trunk_and_written_back(
    name, tmp_path):
  family, settings = MODELS[name]
  config = random_models.config_of(**settings)
  side = (32, 16) if 'oblong' in name else (32, 32)
  arrays = random_models.arrays(family, side, **settings)
  npz.write(tmp_path / 'x.npz', arrays)
  model = vit_jax.load(tmp_path / 'x.npz', log=None)
  assert model.config == config
  random_models.assert_same(model.params, random_models.params(config, side))
  model.save(tmp_path / 'y.npz', form='npz')
  random_models.assert_same(
      {name: npz.open_file(tmp_path / 'y.npz').read(name) for name in arrays},
      arrays)
  again = vit_jax.load(tmp_path / 'y.npz', log=None)
  assert (again.config, again.preprocess) == (model.config, model.preprocess)


@pytest.mark.parametrize(('variant', 'family'), [
    ('Ti/16', 'npz'), ('R+Ti/16', 'npz'), ('R50x1', 'bit')])
def test_a_published_size_in_a_file_is_recognised(variant, family, tmp_path):
  npz.write(tmp_path / 'x.npz', random_models.arrays(
      family, (224, 224), variant=variant, num_classes=3))
  found = open_lib.open(tmp_path / 'x.npz', log=None)
  assert found.config == factory.parse({'variant': variant, 'num_classes': 3})


# 22B is a model of the zoo, which tests it.
@pytest.mark.parametrize(
    'name', [name for name in variants.PUBLISHED if name != '22B/14'])
def test_a_published_model_has_its_variant(name):
  assert inferred.variant(factory.parse({'variant': name})) == name
  assert inferred.variant(factory.parse(
      {'variant': 'Ti/16', 'depth': 11})) == ''


@pytest.mark.parametrize(('change', 'words'), [
    ({'head/bias': None}, 'head/dense/bias: expected .*found nothing'),
    ({'Transformer/encoderblock_0/LayerNorm_0/scale': None},
     'looks like a published JAX ViT, but:.*LayerNorm_0/scale: missing'),
    ({'extra/kernel': np.zeros(3)}, 'extra/kernel: unexpected'),
    ({'cls': np.zeros((2, 12))}, r'cls: expected \[1 n d\], found \(2, 12\)'),
    ({f'ema/{name}': array for name, array in random_models.arrays(
        'npz').items()}, 'found 2, under ')])
def test_an_error_without_the_zoo_says_what_a_plain_vit_lacks(
    change, words, tmp_path):
  arrays = {**random_models.arrays('npz'), **change}
  npz.write(tmp_path / 'x.npz', {
      name: array for name, array in arrays.items() if array is not None})
  with pytest.raises(ValueError, match=(
      f'(?s){words}.*read by vit_jax/extras/zoo, which does not exist')):
    vit_jax.load(tmp_path / 'x.npz', log=None)


def test_files_of_other_codebases_need_the_zoo(tmp_path):
  safetensors.numpy.save_file(
      {'norm.weight': np.ones(3, np.float32)}, tmp_path / 'x.safetensors')
  (tmp_path / 'x.bin').write_bytes(b'\x80\x02' + bytes(40))
  npz.write(tmp_path / 'x.npz', {'norm.weight': np.ones(3, np.float32)})
  for name in ('x.safetensors', 'x.bin', 'x.npz'):
    with pytest.raises(ValueError, match=f'(?s){name}.*vit_jax/extras/zoo'):
      vit_jax.load(tmp_path / name, log=None)
  with pytest.raises(ValueError, match='Unknown format .timm.. Known: npz, '):
    random_models.make_tiny().save(tmp_path / 'y', form='timm')


def test_metadata_of_a_model_that_the_files_do_not_hold_is_an_error(tmp_path):
  random_models.make_tiny().save(tmp_path / 'x.npz', form='npz')
  file = tmp_path / 'x.json'
  data = json.loads(file.read_text())
  data['model'] |= {'name': 'ablation', 'position': '2d'}
  file.write_text(json.dumps(data))
  with pytest.raises(ValueError, match="x.json does not .*'ablation'"):
    vit_jax.load(tmp_path / 'x.npz', log=None)
