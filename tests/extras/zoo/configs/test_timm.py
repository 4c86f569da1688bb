"""Settings of timm's config.json are applied, or refused."""

import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import backbone_config
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import timm_names
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.extras.zoo.configs import timm
from vit_jax.extras.zoo.configs import timm_export
from vit_jax.models import factory
from vit_jax.weights import weights as weights_lib

TINY = random_models.TINY
ARGUMENTS = {'img_size': 32, 'embed_dim': 12, 'depth': 2, 'num_heads': 3,
             'mlp_ratio': 20.5 / 12, 'patch_size': 8}
BASE = {'architecture': 'vit_base_patch16_224', 'model_args': ARGUMENTS}


def load(folder, config, **settings):
  return foreign.load(
      zoo_models.write_folder(folder, 'timm', config, **settings))


def without(*keys, **arguments):
  return {key: value for key, value in {**ARGUMENTS, **arguments}.items()
          if key not in keys}


# ---------------------------------------------------- what a name implies


@pytest.mark.parametrize(('name', 'num_heads', 'implied'), [
    ('vit_so150m2_patch16_reg1_gap_256', 13, {}),
    ('vit_large_patch14_clip_quickgelu_336', 16, {
        'gelu': 'quick', 'layer_norm_epsilon': 1e-5}),
    ('deit3_huge_patch14_224', 16, {'position_cls': False}),
    ('vit_huge_plus_patch16_dinov3', 20, {
        'position': 'none', 'pooling': 'average', 'layer_norm_epsilon': 1e-5,
        'rotary': {
            'coordinates': 'normalized', 'base': 100.0, 'halves': True}}),
    ('vit_pe_core_gigantic_patch14_448', 16, {
        'pooling': 'attention', 'pool_heads': 8, 'layer_norm_epsilon': 1e-5,
        'rotary': {'reference': 32, 'x_first': True}})])
def test_an_architecture_implies_settings(name, num_heads, implied):
  assert timm_names.find_architecture(name) == {
      'gelu': 'exact', 'layer_norm_epsilon': 1e-6, 'position_cls': True,
      'post_norm': False, 'num_heads': num_heads, **implied}


@pytest.mark.parametrize('name', [
    'vit_base_patch16_224_in21k', 'vit_base_patch16_224_miil_in21k',
    'vit_base_patch32_224_clip_laion2b', 'vit_base_resnet50_384'])
def test_names_before_timm_0_8_are_known(name):
  assert timm.parse({'architecture': name}).model['num_heads'] == 12


def test_the_heads_of_an_architecture_override_the_table_of_sizes(tmp_path):
  loaded = load(
      tmp_path, {'architecture': 'vit_base_patch16_gap_224', 'model_args': {
          'img_size': 32, 'patch_size': 32}},
      width=768, depth=1, mlp_dim=3072, patch=32, num_heads=16)
  assert loaded.config.num_heads == 16


def test_an_unknown_name_needs_arguments(tmp_path):
  with pytest.raises(ValueError, match=(
      "(?s)is 'vit_odd_patch8_32', which .* so are num_heads and gelu")):
    load(tmp_path, {'architecture': 'vit_odd_patch8_32'})
  loaded = load(tmp_path, {
      'architecture': 'vit_odd_patch8_32',
      'model_args': without(act_layer='gelu_tanh')})
  assert (loaded.config.num_heads, loaded.config.gelu) == (3, 'tanh')


# ------------------------------------------------------------- its arguments


def test_arguments_of_training_and_defaults_are_accepted():
  model = timm.parse({**BASE, 'model_args': without(
      drop_rate=0.1, dynamic_img_size=True, in_chans=3, qk_norm=False,
      attn_only_layer_scale=False, block_fn=None)}).model
  assert (model['num_heads'], model['layer_scale_mlp']) == (3, True)


@pytest.mark.parametrize(('arguments', 'rotary', 'position'), [
    ({'rope_temperature': 50.0}, {'x_first': True, 'base': 50.0}, 'none'),
    ({'use_rot_pos_emb': False, 'use_abs_pos_emb': True}, None, 'learned')])
def test_rotary_positions_follow_the_arguments(arguments, rotary, position):
  found = timm.parse({'architecture': 'vit_small_patch16_rope_224',
                      'model_args': arguments}).model
  assert (found['rotary'], found['position']) == (rotary, position)


# --------------------------------------------------------------- preprocessing


FLAT = {
    'num_classes': 5, 'input_size': [3, 32, 32], 'pool_size': None,
    'crop_pct': 0.9, 'interpolation': 'lanczos', 'mean': [0.1, 0.2, 0.3],
    'std': [0.4, 0.5, 0.6], 'first_conv': 'patch_embed.proj',
    'classifier': 'head', 'architecture': 'vit_odd_patch8_32'}


@pytest.mark.parametrize('labels', [
    list('abcde'), {str(4 - i): name for i, name in enumerate('edcba')}])
def test_settings_at_the_top_level_of_an_older_file_are_read(labels, tmp_path):
  loaded = load(tmp_path, {**FLAT, 'labels': labels, 'model_args': without(
      act_layer='gelu_tanh')})
  assert loaded.preprocess == resize_and_crop.parse({
      'resolution': 32, 'mean': (0.1, 0.2, 0.3), 'std': (0.4, 0.5, 0.6),
      'keep_aspect': True, 'crop': 0.9, 'interpolation': 'lanczos',
      'labels': tuple('abcde')})
  source = f'declared by {tmp_path / "config.json"}'
  assert loaded.settings == {
      **dict.fromkeys(weights_lib.REPORTED, source),
      'ops': f'assumed, as timm does for this file and {source}'}


def test_names_of_another_number_of_classes_are_ignored_with_a_note(tmp_path):
  loaded = load(tmp_path, {**FLAT, 'labels': ['a', 'b'], 'model_args': without(
      act_layer='gelu_tanh')})
  assert loaded.preprocess.labels == ()
  assert loaded.notes[0].startswith('2 class names of ')


def test_missing_preprocessing_is_that_of_timm(tmp_path):
  # The defaults of timm's PretrainedCfg.
  loaded = load(tmp_path, {**BASE, 'pretrained_cfg': {'std': [0.4, 0.5, 0.6]}})
  assert loaded.preprocess == resize_and_crop.parse({
      'resolution': 32, 'mean': preprocessing.IMAGENET_MEAN,
      'std': (0.4, 0.5, 0.6), 'keep_aspect': True, 'crop': 0.875,
      'interpolation': 'bicubic'})
  assert {name for name, origin in loaded.settings.items()
          if origin.startswith('declared')} == {'std', 'num_heads'}


# 9 position embeddings are of 3x3 patches, or of 2x2, a class token and 4
# registers.
@pytest.mark.parametrize(('side', 'embedded'), [(16, True), (24, False)])
@pytest.mark.parametrize('missing', ['', 'img_size'])
def test_arguments_set_whether_registers_have_position_embeddings(
    side, embedded, missing, tmp_path):
  arrays, _ = zoo_models.registers(side, embedded=embedded, num=4)
  loaded = load(tmp_path, {**BASE, 'model_args': without(
      missing, img_size=side, reg_tokens=4, no_embed_class=not embedded)},
                found=arrays)
  assert loaded.resolution == (side, side)
  assert loaded.config.position_cls == embedded


# ------------------------------------------------------------------- export

PLAIN = preprocessing.Preprocess(resolution=(32, 32))


def exported(**settings):
  config = backbone_config.general(
      factory.parse({'num_classes': 3, **settings}))
  model = weights_lib.Weights.of(
      {}, config=config, preprocess=PLAIN, resolution=(64, 64))
  return timm_export.config_json(model)


def test_a_published_resnet_is_exported_by_its_name():
  assert exported(variant='R152x4')['architecture'] == 'resnetv2_152x4_bit'


def test_a_hybrid_is_exported_as_its_network_with_arguments_for_the_encoder():
  config = exported(variant='R50+B/32', num_heads=8)
  assert config['architecture'] == 'vit_large_r50_s32_224'
  arguments = config['model_args']
  assert {name: arguments[name] for name in (
      'embed_dim', 'depth', 'num_heads', 'patch_size', 'mlp_ratio')} == {
          'embed_dim': 768, 'depth': 12, 'num_heads': 8, 'patch_size': 1,
          'mlp_ratio': 4.0}


def test_factors_of_an_architecture_that_a_model_lacks_are_removed():
  arguments = exported(
      variant='vit_giant_patch14_dinov2', layer_scale=None)['model_args']
  assert arguments['init_values'] == 0


@pytest.mark.parametrize(('mlp_dim', 'width'), [
    (8192, 1664), (20, 12), (49, 36)])
def test_the_exported_ratio_gives_the_mlp_its_width(mlp_dim, width):
  ratio = exported(**{**TINY, 'mlp_dim': mlp_dim, 'width': width})[
      'model_args']['mlp_ratio']
  assert int(width * ratio) == mlp_dim
