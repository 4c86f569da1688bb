"""What is said beside the arrays is used where it is true, and only there."""

import json

import numpy as np
import pytest

from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax.weights import convert
from vit_jax.weights import names
from vit_jax.weights import overrides
from vit_jax.weights import safetensors
from vit_jax.weights import write
from vit_jax.weights.configs import config_json
from vit_jax.weights.configs import preprocessing as preprocessing_lib

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
PREPROCESS = preprocessing_lib.Preprocess(
    resolution=(32, 32), mean=(0.1, 0.2, 0.3), crop=0.9, keep_aspect=True,
    labels=tuple('abcde'))


def make(**settings):
  """Returns a config, and parameters of which no two are alike."""
  config = models.parse({**TINY, **settings})
  shapes = tree.flatten(convert.abstract_params(config, (32, 32)))
  rng = np.random.default_rng(0)
  return config, {name: rng.normal(size=shape.shape).astype(np.float32)
                  for name, shape in shapes.items()}


def write_own(path, config, params, form='timm', **change):
  """Writes a file that says what it is; `change` makes it say otherwise."""
  said = {'model': {**schema.to_plain(config), **change},
          'preprocess': schema.to_plain(PREPROCESS)}
  safetensors.write(
      path, write.to_arrays(names.FAMILIES[form], params),
      metadata={'vit_jax': json.dumps(said)})


# ------------------------------------------------------- in the file itself


@pytest.mark.parametrize('form', ['timm', 'huggingface'])
@pytest.mark.parametrize('settings', [
    {'num_heads': 3, 'gelu': 'tanh', 'layer_norm_epsilon': 1e-4},
    {'dropout': 0.1}])
def test_a_file_that_says_what_it_is_comes_back_exactly(
    form, settings, tmp_path):
  config, params = make(**settings)
  write_own(tmp_path / 'x', config, params, form)
  loaded = convert.read(tmp_path / 'x')
  assert loaded.config == config
  assert loaded.preprocess == PREPROCESS
  assert 'with the file itself: ' in '\n'.join(loaded.statement)
  found = tree.flatten(loaded.params)
  assert set(found) == set(params)
  for name, array in params.items():
    np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize(('change', 'words'), [
    ({'width': 24}, 'width: expected 24, found 12'),
    ({'depth': 3}, 'depth: expected 3, found 2'),
    ({'num_classes': 6}, 'num_classes: expected 6, found 5'),
    ({'position': 'none'}, "position: expected 'none', found 'learned'"),
    ({'final_norm': False}, 'final_norm: expected False, found True'),
    ({'pooling': 'average', 'cls': False}, 'cls: expected False, found True'),
    ({'backbone': {'depths': [1]}, 'patch': 8}, 'backbone: expected '),
    ({'num_heads': 5}, 'does not divide into 5 heads'),
    ({'num_heads': 'two'}, "model.num_heads must be int, but is 'two'"),
    ({'gelu': 'quick'}, "model.gelu is 'quick'"),
    ({'variant': 'B/16'}, "variant 'B/16' is of other dimensions"),
    ({'layer_norm_epsilon': 0.0}, 'layer_norm_epsilon must be positive'),
    ({'depht': 3}, "Did you mean 'depth'")])
def test_a_file_that_contradicts_itself_is_an_error(change, words, tmp_path):
  config, params = make()
  write_own(tmp_path / 'x', config, params, **change)
  with pytest.raises(ValueError, match=words) as error:
    convert.read(tmp_path / 'x')
  assert 'vit_jax in the metadata of' in str(error.value)


@pytest.mark.parametrize(('text', 'words'), [
    ('{', 'is not JSON'), ('[' * 100_000, 'is not JSON'),
    ('[]', 'a section with keys'), ('{}', r'needs the key.s. model, preproc'),
    ('{"model": {}, "preprocess": {}}', 'neither a variant nor width'),
    ('{"model": {"variant": "B/16"}, "preprocess": {}}',
     'needs the key.s. resolution'),
    ('{"model": 3, "preprocess": {}}', 'model must be a section'),
    ('{"model": {}, "preprocess": {}, "code": 1}', 'Unknown key .*code')])
def test_text_in_the_file_that_says_nothing_is_an_error(
    text, words, tmp_path):
  _, params = make()
  safetensors.write(tmp_path / 'x', write.to_arrays(
      names.FAMILIES['timm'], params), metadata={'vit_jax': text})
  with pytest.raises(ValueError, match=words) as error:
    convert.read(tmp_path / 'x')
  assert 'vit_jax in the metadata of' in str(error.value)


def test_an_override_wins_over_the_file_itself(tmp_path):
  config, params = make(**{
      **TINY, 'variant': 'Ti/16', 'width': 192, 'depth': 12, 'mlp_dim': 768,
      'num_heads': 3, 'patch': 16})
  write_own(tmp_path / 'x', config, params)
  assert convert.read(tmp_path / 'x').config.variant == 'Ti/16'
  loaded = convert.read(tmp_path / 'x', {'num_heads': 6, 'mean': 0.5})
  assert (loaded.config.num_heads, loaded.config.variant) == (6, '')
  assert loaded.preprocess.mean == (0.5,) * 3
  assert loaded.preprocess.crop == PREPROCESS.crop


def test_positions_and_images_may_be_of_different_sizes(tmp_path):
  config, params = make()
  said = {'model': schema.to_plain(config),
          'preprocess': {'resolution': [64, 48]},
          'resolution': [32, 32], 'positions': 'linear'}
  arrays = write.to_arrays(names.FAMILIES['timm'], params)
  safetensors.write(
      tmp_path / 'x', arrays, metadata={'vit_jax': json.dumps(said)})
  loaded = convert.read(tmp_path / 'x')
  assert (loaded.resolution, loaded.preprocess.resolution) == (
      (32, 32), (64, 48))
  assert loaded.positions == 'linear'
  del said['resolution']
  safetensors.write(
      tmp_path / 'x', arrays, metadata={'vit_jax': json.dumps(said)})
  with pytest.raises(
      ValueError, match=r'resolution: expected \(64, 48\), found 17 position'):
    convert.read(tmp_path / 'x')


# ------------------------------------------------------------------ config.json

HF = {'model_type': 'vit', 'architectures': ['ViTForImageClassification'],
      'hidden_size': 12, 'num_hidden_layers': 2, 'num_attention_heads': 3,
      'intermediate_size': 20, 'image_size': 32, 'patch_size': 8,
      'qkv_bias': True, 'hidden_act': 'gelu_new', 'layer_norm_eps': 1e-7,
      'id2label': {str(i): f'class {i}' for i in range(5)}}
TIMM = {'architecture': 'vit_tiny_patch16_224', 'num_classes': 5,
        'num_features': 12, 'global_pool': 'token', 'model_args': {
            'img_size': 32, 'embed_dim': 12, 'depth': 2, 'num_heads': 3,
            'mlp_ratio': 20.5 / 12, 'patch_size': 8, 'act_layer': 'gelu_tanh'},
        'pretrained_cfg': {'mean': [0.1, 0.2, 0.3], 'input_size': [3, 32, 32]}}

CONTRADICTIONS = [
    ('huggingface', {'hidden_size': 24}, 'hidden_size: expected 24, found 12'),
    ('huggingface', {'patch_size': 16}, 'patch_size: expected 16, found 8'),
    ('huggingface', {'qkv_bias': False},
     'qkv_bias: expected False, found True'),
    ('huggingface', {'image_size': 48},
     r'image_size: expected \(48, 48\), found 17 position embeddings'),
    ('huggingface', {'intermediate_size': 48},
     'intermediate_size: expected 48, found 20'),
    ('huggingface', {'num_hidden_layers': 12},
     'num_hidden_layers: expected 12, found 2'),
    ('huggingface', {'id2label': {'0': 'cat', '1': 'dog'}},
     'id2label: expected 2, found 5'),
    ('huggingface', {'num_labels': 7}, 'num_labels: 7, id2label: 5 names'),
    ('huggingface', {'num_labels': 7, 'id2label': None},
     'num_labels: expected 7, found 5'),
    ('huggingface', {'model_type': 'swin'},
     "it says model_type 'swin', but the arrays are those of a Hugging Face"),
    ('huggingface', {'hidden_size': 'wide'}, 'hidden_size must be int, but'),
    ('huggingface', {'layer_norm_eps': '1e-6'}, 'layer_norm_eps must be float'),
    ('huggingface', {'layer_norm_eps': 0.0}, 'layer_norm_eps must be posit'),
    ('timm', {'architecture': 'swin_tiny'}, "it says architecture 'swin_tiny'"),
    ('timm', {'architecture': 'resnetv2_50x1_bit'}, 'architecture .*timm ViT'),
    ('timm', {'num_classes': 7}, 'num_classes: expected 7, found 5'),
    ('timm', {'num_features': 24}, 'num_features: expected 24, found 12'),
    ('timm', {'model_args': {}},
     'width of vit_tiny_patch16_224: expected 192, found 12'),
    ('timm', {'model_args': []}, 'contradicts the arrays'),
    ('timm', {'model_args': [3]}, 'it is not understood'),
    ('timm', {'global_pool': 'map'}, 'found no learned query'),
    ('timm', {'pretrained_cfg': {'mean': 0.5}}, 'it is not understood')]


def write_beside(folder, form, change):
  _, params = make()
  safetensors.write(folder / 'model.safetensors', write.to_arrays(
      names.FAMILIES[form], params))
  config = {**{'huggingface': HF, 'timm': TIMM}[form], **change}
  (folder / 'config.json').write_text(json.dumps(config))


@pytest.mark.parametrize('form', ['huggingface', 'timm'])
@pytest.mark.parametrize('bare', [True, False])
def test_a_config_that_agrees_is_used(form, bare, tmp_path):
  write_beside(tmp_path, form, {})
  loaded = convert.read(tmp_path / 'model.safetensors' if bare else tmp_path)
  assert (loaded.config.num_heads, loaded.config.gelu) == (3, 'tanh')
  text = '\n'.join(loaded.statement)
  assert f'with {tmp_path / "config.json"}: ' in text and 'num_heads=3' in text
  assert 'ignored' not in text


@pytest.mark.parametrize(('form', 'change', 'words'), CONTRADICTIONS)
def test_a_folder_that_contradicts_itself_is_an_error(
    form, change, words, tmp_path):
  write_beside(tmp_path, form, change)
  with pytest.raises(ValueError, match=words) as error:
    convert.read(tmp_path)
  assert f'{tmp_path / "config.json"} is not of the weights' in str(error.value)


@pytest.mark.parametrize(
    ('form', 'change', 'words'), [CONTRADICTIONS[i] for i in (0, 9, 13, 17)])
def test_a_neighbour_of_another_model_is_ignored_and_said(
    form, change, words, tmp_path):
  write_beside(tmp_path, form, change)
  file = tmp_path / 'model.safetensors'
  loaded = convert.read(file, {'num_heads': 2})
  assert loaded.config.num_heads == 2
  # What the other model's config says is not in it.
  assert loaded.config.gelu == 'exact'
  assert loaded.preprocess == preprocessing_lib.Preprocess(resolution=(32, 32))
  note = next(line for line in loaded.statement if 'ignored' in line)
  assert f'ignored {tmp_path / "config.json"}, not of this file: ' in note
  assert '\n' not in note
  with pytest.raises(ValueError, match=words):
    raise ValueError(note)


@pytest.mark.parametrize('text', ['{', '[]', '[' * 100_000, '"x"'])
def test_a_config_that_is_none_blocks_a_folder_but_no_file(text, tmp_path):
  write_beside(tmp_path, 'timm', {})
  (tmp_path / 'config.json').write_text(text)
  with pytest.raises(ValueError, match='is not JSON|not an object'):
    convert.read(tmp_path)
  loaded = convert.read(tmp_path / 'model.safetensors', {'num_heads': 2})
  assert 'ignored' in '\n'.join(loaded.statement)


def test_the_config_of_a_ship_is_ignored_and_said(tmp_path):
  write_beside(tmp_path, 'timm', {})
  (tmp_path / 'config.json').write_text('{"sails": 3}')
  loaded = convert.read(tmp_path, {'num_heads': 2})
  assert 'neither of timm nor of Hugging Face' in '\n'.join(loaded.statement)


def test_a_base_model_may_carry_labels_along(tmp_path):
  _, params = make(num_classes=0)
  safetensors.write(tmp_path / 'model.safetensors', write.to_arrays(
      names.FAMILIES['huggingface'], params))
  (tmp_path / 'config.json').write_text(json.dumps(
      {**HF, 'architectures': ['ViTModel']}))
  loaded = convert.read(tmp_path)
  assert (loaded.config.num_classes, loaded.preprocess.labels) == (0, ())
  # But a classifier without its head is no base model.
  (tmp_path / 'config.json').write_text(json.dumps(HF))
  with pytest.raises(ValueError, match='id2label: expected 5, found 0'):
    convert.read(tmp_path)


def test_a_preprocessor_that_is_none_is_an_error(tmp_path):
  write_beside(tmp_path, 'huggingface', {})
  for text in ('{', '{"image_mean": 3}', '{"image_std": [0, 1, 1]}'):
    (tmp_path / 'preprocessor_config.json').write_text(text)
    with pytest.raises(ValueError, match='preprocessor_config.json'):
      convert.read(tmp_path)


@pytest.mark.parametrize(('name', 'variant'), [
    ('vit_tiny_patch16_224', 'Ti/16'), ('vit_small_patch32_384.tag', 'S/32'),
    ('deit_base_patch16_384', 'B/16'), ('deit3_huge_patch14_224', 'H/14'),
    ('vit_giant_patch14_224', 'g/14'), ('vit_tiny_r_s16_p8_224', 'R+Ti/16'),
    ('vit_small_r26_s32_384', 'R26+S/32'), ('vit_base_r50_s16_384', 'R50+B/16'),
    ('vit_large_r50_s32_224', 'R50+L/32'), ('resnetv2_152x4_bit', 'R152x4'),
    # Of these the name does not say all that the model is.
    ('vit_small_patch16_36x1_224', ''), ('vit_giant_patch14_dinov2', ''),
    ('vit_base_patch16_gap_224', ''), ('resnetv2_50', '')])
def test_timms_architecture_claims_the_dimensions_of_its_size(name, variant):
  found = config_json.parse({'architecture': name})
  assert found.claims == (overrides.of_variant(variant) if variant else {})


def test_timms_arguments_change_what_the_architecture_claims():
  claims = config_json.parse({
      'architecture': 'resnetv2_50x3_bit',
      'model_args': {'stem_chs': 32, 'layers': [1, 2]}}).claims
  assert claims['backbone'] == {'depths': (1, 2), 'width': 96}
  claims = config_json.parse({
      'architecture': 'vit_base_patch16_224',
      'model_args': {'embed_dim': 96, 'patch_size': [8, 4]}}).claims
  assert (claims['width'], claims['patch'], claims['depth']) == (96, (8, 4), 12)
  assert 'mlp_dim' not in claims


def test_what_only_started_from_a_variant_is_written_without_its_name(
    tmp_path):
  config, params = make(variant='B/16')
  write.write(tmp_path / 'x', 'timm', config, tree.unflatten(params),
               resolution=(32, 32), preprocess=PREPROCESS, positions='cubic')
  assert convert.read(tmp_path / 'x').config.variant == ''
