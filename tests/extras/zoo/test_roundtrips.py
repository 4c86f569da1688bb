"""A model saved in any format loads bitwise identical, or saving is refused."""

import pytest

from tests import random_models
import vit_jax
from vit_jax.models import variants
from vit_jax.weights import save as save_lib

TINY = random_models.TINY


def check_round_trip(model, target, form):
  model.save(target, form=form)
  again = vit_jax.load(target, log=None)
  random_models.assert_same(again.params, model.params)
  for name in ('config', 'preprocess', 'resolution', 'positions'):
    assert getattr(again, name) == getattr(model, name), name
  return again


# Components of current backbones.
BACKBONES = {
    'CLIP': {'gelu': 'quick', 'stem_norm': 'tokens',
             'layer_norm_epsilon': 1e-5},
    'DINOv3': {
        'rotary': {'coordinates': 'normalized', 'base': 100, 'halves': True},
        'num_heads': 3, 'mlp': 'swiglu', 'position': 'none', 'registers': 2,
        'qkv_bias': False, 'layer_scale': 1e-5, 'gelu': 'exact'},
    'EVA-02': {'rotary': {'reference': 16}, 'num_heads': 3, 'mlp': 'swiglu',
               'inner_norm': 'both', 'key_bias': False, 'gelu': 'exact'},
    'learned rotary': {
        'rotary': {'learned': True, 'base': 10, 'x_first': True},
        'num_heads': 3, 'layer_scale': 1e-5, 'gelu': 'exact'},
    'Perception Encoder': {
        'rotary': {'offset': 1.0, 'reference': 4}, 'num_heads': 3,
        'stem_norm': 'tokens', 'pooling': 'attention', 'cls': True,
        'pool_prefix': True, 'pool_heads': 2, 'pool_mlp_dim': 8,
        'gelu': 'exact'},
    'AIMv2': {'norm': 'rms', 'mlp': 'swiglu', 'proj_bias': False,
              'stem_norm': 'patches', 'pooling': 'average',
              'layer_norm_epsilon': 1e-5},
    'BEiT': {'position': 'relative_2d', 'key_bias': False, 'gelu': 'exact',
             'layer_scale': 0.1, 'pooling': 'average', 'cls': True,
             'pool_norm': True, 'final_norm': False},
    'BEiT, shared': {'position': 'relative_2d', 'key_bias': False,
                     'position_at': 'shared', 'gelu': 'exact'},
    'offsets without a class token': {
        'position': 'relative_2d', 'pooling': 'average', 'gelu': 'exact'},
    'an MLP of offsets': {
        'position': 'relative_mlp', 'position_at': 'shared', 'gelu': 'exact',
        'position_mlp_dim': 7, 'qk_norm': True, 'post_norm': True},
    'residual norms, rotary': {
        'post_norm': True, 'gelu': 'exact', 'num_heads': 3,
        'rotary': {'reference': 16}},
    'Sapiens2': {
        'rotary': {'coordinates': 'normalized', 'base': 100, 'halves': True},
        'num_heads': 3, 'mlp': 'swiglu', 'position': 'none', 'registers': 2,
        'norm': 'rms', 'qk_norm': True, 'layer_scale': 1.0, 'gelu': 'exact',
        'layer_scale_mlp': False},
    'parallel layers with biases': {'parallel': True, 'gelu': 'exact'},
    'differential': {'differential': True, 'layer_scale': 0.1},
    'differential, parallel': {'differential': True, 'parallel': True},
    'paired': {'paired': True, 'layer_scale': 0.1, 'gelu': 'exact'},
    'norms of queries and keys': {'qk_norm': True}}
SETTINGS = {
    'plain': {},
    'no classes': {'num_classes': 0},
    'settings that no array shows': {
        'gelu': 'exact', 'layer_norm_epsilon': 1e-4, 'num_heads': 3},
    'registers': {'registers': 2},
    'registers without positions': {'registers': 2, 'position_cls': False},
    'registers, average': {'registers': 7, 'pooling': 'average'},
    'layer scale': {'layer_scale': 1e-5},
    'no qkv bias': {'qkv_bias': False},
    'average': {'pooling': 'average'},
    'average with a class token': {'pooling': 'average', 'cls': True},
    'norm after pooling': {
        'pooling': 'average', 'pool_norm': True, 'final_norm': False},
    'attention pooling': {'pooling': 'attention'},
    'representation': {'representation_layer': True},
    'no final norm': {'final_norm': False},
    'class token without position': {'position_cls': False},
    'no positions': {'position': 'none'},
    'patches that are not square': {'patch': (8, 4)},
    '2-D positions': {'position': '2d'},
    'relative positions': {'position': 'relative'},
    'sine-cosine positions': {'position': 'sincos'},
    'positions in every layer': {'position_at': 'layers'},
    'axial': {'axial': True, 'pooling': 'average'},
    'grouped queries': {'num_kv_heads': 1},
    'parallel': {'parallel': True, 'qk_norm': True, 'norm': 'rms',
                 'qkv_bias': False},
    'rotary registers': {
        'rotary': {'register_base': 100.0}, 'registers': 4, 'num_heads': 3},
    'tokens and their average': {
        'layer_scale': 1e-5, 'pooling': 'cls_average', 'mlp_dim': 24},
    'tokens and registers': {'pooling': 'cls_registers', 'registers': 2},
    **BACKBONES,
}
ONLY_ORBAX = {
    '2-D positions', 'relative positions', 'sine-cosine positions',
    'positions in every layer', 'axial', 'grouped queries',
    'rotary registers', 'tokens and their average', 'tokens and registers'}
WITHOUT_SCALE = 'differential, parallel'  # timm's have a layer scale.
QUICK = {'plain', 'no classes', 'settings that no array shows', 'registers',
         'attention pooling', 'grouped queries', 'DINOv3', 'BEiT', 'AIMv2'}
REFUSED = {
    'orbax': set(),
    'npz': {*ONLY_ORBAX - {'sine-cosine positions'}, 'parallel',
            'registers', 'registers without positions', 'registers, average',
            'layer scale', 'norm after pooling', 'no qkv bias',
            'class token without position',
            *BACKBONES},
    'timm': {*ONLY_ORBAX, 'representation', WITHOUT_SCALE,
             'settings that no array shows'}}


@pytest.mark.parametrize('setting', [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK))
    for name in SETTINGS])
@pytest.mark.parametrize('form', save_lib.FORMATS)
def test_a_vit_is_loaded_back_or_refused(form, setting, tmp_path):
  model = random_models.make_tiny(**SETTINGS[setting])
  target = tmp_path / 'x'
  if setting in REFUSED[form]:
    with pytest.raises(ValueError, match=(
        'timm has no|is for plain ViTs|has no parameter')):
      model.save(target, form=form)
    assert not list(tmp_path.iterdir())
  else:
    check_round_trip(model, target, form)


@pytest.mark.parametrize('form', save_lib.FORMATS)
def test_a_grid_that_is_not_square_is_loaded_back(form, tmp_path):
  check_round_trip(random_models.make(TINY, side=(16, 40)),
                   tmp_path / 'x', form)


def narrow(variant):
  """Returns a section with the variant's structure and few channels."""
  section = variants.section(variant)
  backbone = section['backbone']
  backbone |= {'width': 32,  # The smallest that its groups allow.
               # The first stage has units that are scanned.
               'depths': (2, 1)[:len(backbone['depths'])]}
  if section['name'] == 'resnet':
    return {'name': 'resnet', 'num_classes': 5, 'backbone': backbone}
  return {**TINY, 'backbone': backbone, 'patch': section['patch']}


@pytest.mark.parametrize('variant', [
    pytest.param('R50+B/16', marks=pytest.mark.slow), 'R+Ti/16', 'R50x1'])
def test_a_convolutional_network_is_loaded_back_or_refused(variant, tmp_path):
  model = random_models.make(narrow(variant), side=32)
  for form in ('npz', 'orbax'):
    check_round_trip(model, tmp_path / form, form)
  with pytest.raises(ValueError, match='timm has no architecture .*orbax'):
    model.save(tmp_path / 'y', form='timm')
