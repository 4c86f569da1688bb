"""What timm's config.json says is done, or it is refused in words."""

import json

import numpy as np
import pytest

from vit_jax import models
from vit_jax import tree
from vit_jax.weights import convert
from vit_jax.weights import names
from vit_jax.weights import safetensors
from vit_jax.weights import write as write_lib
from vit_jax.weights.configs import config_json
from vit_jax.weights.configs import timm_architectures

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
ARGUMENTS = {'img_size': 32, 'embed_dim': 12, 'depth': 2, 'num_heads': 3,
             'mlp_ratio': 20.5 / 12, 'patch_size': 8}
BASE = {'architecture': 'vit_base_patch16_224', 'model_args': ARGUMENTS}


def write(folder, config, form='timm', **settings):
  model = models.parse({**TINY, **settings})
  rng = np.random.default_rng(0)
  params = {name: rng.normal(size=shape.shape).astype(np.float32)
            for name, shape in tree.flatten(
                convert.abstract_params(model, (32, 32))).items()}
  safetensors.write(folder / 'model.safetensors', write_lib.to_arrays(
      names.FAMILIES[form], params))
  (folder / 'config.json').write_text(json.dumps(config))
  return params


def without(*keys, **arguments):
  kept = {k: v for k, v in ARGUMENTS.items() if k not in keys}
  return {**kept, **arguments}


# ---------------------------------------------------- what a name implies


@pytest.mark.parametrize(('name', 'num_heads', 'gelu', 'embedded'), [
    ('vit_base_patch16_224', 12, 'exact', True),
    ('vit_base_patch16_gap_224', 16, 'exact', True),
    ('vit_base_patch16_siglip_256', 12, 'exact', True),
    ('vit_base_patch32_siglip_256', 12, 'tanh', True),
    ('vit_base_patch32_siglip_gap_256', 12, 'tanh', True),
    ('vit_large_patch16_siglip_384', 16, 'exact', True),
    ('vit_large_patch16_siglip_gap_512', 16, 'tanh', True),
    ('vit_so400m_patch14_siglip_224', 16, 'exact', True),
    ('vit_so400m_patch16_siglip_384', 16, 'tanh', True),
    ('vit_giantopt_patch16_siglip_gap_384', 16, 'tanh', True),
    ('vit_small_patch14_reg4_dinov2', 6, 'exact', False),
    ('vit_so150m2_patch16_reg1_gap_256', 13, 'exact', True),
    ('vit_tiny_r_s16_p8_224', 3, 'exact', True),
    ('deit_tiny_patch16_224', 3, 'exact', True),
    ('deit3_medium_patch16_224', 8, 'exact', False),
    ('flexivit_small', 6, 'exact', False), ('test_vit', 2, 'exact', True)])
def test_an_architecture_implies_what_timms_function_passes(
    name, num_heads, gelu, embedded):
  assert timm_architectures.find(name) == timm_architectures.Architecture(
      num_heads, gelu, embedded)


@pytest.mark.parametrize('name', [
    'vit_base_patch16_rpn_224', 'vit_base_patch16_plus_240',
    'vit_base_patch16_clip_224', 'vit_base_patch16_xp_224', 'test_vit3',
    'vit_base_patch16_18x2_224', 'vit_giant_patch14_dinov2', 'test_vit4',
    'vit_base_patch16_of_next_year', 'vit_relpos_base_patch16_224'])
def test_an_architecture_of_other_blocks_implies_nothing(name):
  assert timm_architectures.find(name) is None


def test_the_heads_of_a_name_win_over_the_table_of_sizes(tmp_path):
  b = {'width': 768, 'depth': 12, 'mlp_dim': 3072, 'patch': 32}
  write(tmp_path, {'architecture': 'vit_base_patch16_gap_224', 'model_args': {
      'img_size': 32, 'patch_size': 32}}, **b, num_heads=16)
  assert convert.read(tmp_path).config.num_heads == 16


@pytest.mark.parametrize('bare', [False, True])
def test_a_name_that_is_not_known_is_asked_about(bare, tmp_path):
  write(tmp_path, {'architecture': 'vit_odd_patch8_32'})
  path = tmp_path / 'model.safetensors' if bare else tmp_path
  for given, words in (({}, 'num_heads=N'), ({'num_heads': 2}, "gelu='exact'"),
                       ({'gelu': 'tanh'}, 'num_heads=N')):
    with pytest.raises(ValueError, match=words):
      convert.read(path, given)
  loaded = convert.read(path, {'num_heads': 2, 'gelu': 'tanh'})
  assert (loaded.config.num_heads, loaded.config.gelu) == (2, 'tanh')


def test_arguments_say_what_an_unknown_name_does_not(tmp_path):
  write(tmp_path, {'architecture': 'vit_odd_patch8_32', 'model_args': without(
      act_layer='gelu_tanh')})
  loaded = convert.read(tmp_path)
  assert (loaded.config.num_heads, loaded.config.gelu) == (3, 'tanh')


def test_blocks_of_another_kind_are_no_matter_of_settings(tmp_path):
  write(tmp_path, {**BASE, 'architecture': 'vit_base_patch16_rpn_224'})
  with pytest.raises(ValueError, match='normalise what comes out'):
    convert.read(tmp_path, {'num_heads': 3, 'gelu': 'exact'})


# ------------------------------------------------------------- its arguments


@pytest.mark.parametrize(('key', 'value'), [
    ('pool_include_prefix', True), ('norm_layer', 'rmsnorm'),
    ('qk_norm', True), ('pre_norm', True), ('block_fn', 'ResPostBlock'),
    ('in_chans', 1), ('mlp_layer', 'swiglu'), ('attn_layer', 'diff'),
    ('proj_bias', False), ('of_next_year', 1)])
@pytest.mark.parametrize('bare', [False, True])
def test_an_argument_that_ours_do_not_have_is_refused(
    key, value, bare, tmp_path):
  write(tmp_path, {**BASE, 'model_args': without(**{key: value})})
  with pytest.raises(ValueError, match=f'model_args has {key}={value!r}'):
    convert.read(tmp_path / 'model.safetensors' if bare else tmp_path)


@pytest.mark.parametrize('arguments', [
    {'drop_rate': 0.1, 'drop_path_rate': 0.2, 'weight_init': 'skip'},
    {'dynamic_img_size': True, 'in_chans': 3, 'qk_norm': False},
    {'block_fn': None, 'norm_layer': None, 'act_layer': None}])
def test_an_argument_of_training_or_at_its_default_is_none(
    arguments, tmp_path):
  write(tmp_path, {**BASE, 'model_args': without(**arguments)})
  assert convert.read(tmp_path).config.num_heads == 3


@pytest.mark.parametrize('pool', ['max', 'avgmax', '', 'prr', ['avg']])
@pytest.mark.parametrize('inside', [False, True])
def test_a_pooling_that_ours_do_not_have_is_refused(pool, inside, tmp_path):
  config = dict(BASE)
  if inside:
    config['model_args'] = without(global_pool=pool)
  else:
    config['global_pool'] = pool
  write(tmp_path, config)
  with pytest.raises(ValueError, match='global_pool is'):
    convert.read(tmp_path)
  loaded = convert.read(tmp_path, {'pooling': 'average'})
  assert loaded.config.pooling == 'average'


def test_two_poolings_are_asked_about(tmp_path):
  write(tmp_path, {**BASE, 'global_pool': 'avg', 'model_args': without(
      global_pool='token')})
  with pytest.raises(ValueError, match="'avg', and in model_args 'token'"):
    convert.read(tmp_path)


def test_an_activation_that_ours_do_not_have_is_refused(tmp_path):
  write(tmp_path, {**BASE, 'model_args': without(act_layer='relu')})
  with pytest.raises(ValueError, match="act_layer is 'relu'"):
    convert.read(tmp_path)
  assert convert.read(tmp_path, {'gelu': 'tanh'}).config.gelu == 'tanh'


@pytest.mark.parametrize(('config', 'words'), [
    ({'architecture': 'resnetv2_50'}, 'is no BiT'),
    ({'architecture': 'resnetv2_50x1_bit', 'global_pool': 'max'},
     'pool by avg'),
    ({'architecture': 'resnetv2_50x1_bit', 'model_args': {'avg_down': True}},
     'model_args has avg_down=True')])
def test_a_network_that_is_no_bit_is_refused(config, words):
  (refused, *_) = config_json.parse(config).refused(())
  assert words in refused


# --------------------------------------------------------------- preprocessing


@pytest.mark.parametrize(('said', 'words', 'given'), [
    ({'interpolation': 'random'}, "interpolation is 'random'",
     {'interpolation': 'bicubic'}),
    ({'mean': [0.5, 0.5]}, 'mean must be three numbers', {'mean': 0.5}),
    ({'crop_pct': 0.9, 'crop_mode': 'border'}, "crop_mode is 'border'",
     {'keep_aspect': False}),
    ({'input_size': [1, 32, 32]}, 'input_size must be', None)])
def test_images_that_are_not_understood_are_refused_or_given(
    said, words, given, tmp_path):
  write(tmp_path, {**BASE, 'pretrained_cfg': said})
  with pytest.raises(ValueError, match=words):
    convert.read(tmp_path)
  if given:
    loaded = convert.read(tmp_path, given)
    (name, value), = given.items()
    assert getattr(loaded.preprocess, name) == (
        (value,) * 3 if name == 'mean' else value)


# ------------------------------------------------------------- Hugging Face's

HF = {'model_type': 'vit', 'hidden_size': 12, 'num_attention_heads': 3}


@pytest.mark.parametrize('bare', [False, True])
def test_an_activation_of_hugging_face_is_ours_or_refused(bare, tmp_path):
  write(tmp_path, {**HF, 'hidden_act': 'relu'}, form='huggingface')
  path = tmp_path / 'model.safetensors' if bare else tmp_path
  with pytest.raises(ValueError, match="hidden_act is 'relu'"):
    convert.read(path)
  assert convert.read(path, {'gelu': 'tanh'}).config.gelu == 'tanh'


def test_a_pooler_that_is_kept_is_a_tanh(tmp_path):
  settings = {'representation_layer': True, 'num_classes': 0}
  config = {**HF, 'architectures': ['ViTModel']}
  write(tmp_path, config, form='huggingface', **settings)
  assert convert.read(tmp_path).config.representation_layer
  write(tmp_path, {**config, 'pooler_act': 'relu'}, form='huggingface',
        **settings)
  with pytest.raises(ValueError, match="pooler_act is 'relu', but ours is"):
    convert.read(tmp_path)
  # Without one, it does not matter.
  write(tmp_path, {**HF, 'pooler_act': 'relu'}, form='huggingface')
  assert convert.read(tmp_path).config.num_classes == 5
