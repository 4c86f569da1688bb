"""Settings of Hugging Face's JSON files are applied, or refused."""

import json

import pytest

from tests.extras.zoo import zoo_models
from vit_jax.data.images import ops as ops_lib
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import safetensors
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.configs import resize_and_crop

HF = {'model_type': 'vit', 'hidden_size': 12, 'num_attention_heads': 3}


def write(folder, config, processor=None, **settings):
  safetensors.write(folder / 'model.safetensors',
                    zoo_models.arrays('huggingface', **settings))
  (folder / 'config.json').write_text(json.dumps(config))
  if processor is not None:
    (folder / 'preprocessor_config.json').write_text(json.dumps(processor))


def test_a_folder_sets_what_shapes_do_not(tmp_path):
  write(tmp_path, {
      **HF, 'num_hidden_layers': 2, 'intermediate_size': 20, 'image_size': 32,
      'hidden_act': 'gelu_pytorch_tanh', 'layer_norm_eps': 1e-7,
      'id2label': {str(i): f'class {i}' for i in range(5)}}, {
          'size': {'height': 32, 'width': 32}, 'image_mean': [0.1, 0.2, 0.3],
          'image_std': [0.4, 0.5, 0.6], 'resample': 3})
  loaded = foreign.load(tmp_path)
  assert (loaded.config.num_heads, loaded.config.gelu,
          loaded.config.layer_norm_epsilon) == (3, 'tanh', 1e-7)
  assert loaded.preprocess == resize_and_crop.parse({
      'resolution': 32, 'mean': (0.1, 0.2, 0.3), 'std': (0.4, 0.5, 0.6),
      'interpolation': 'bicubic',
      'labels': tuple(f'class {i}' for i in range(5))})


def test_the_pooler_of_a_base_model_must_be_a_tanh(tmp_path):
  settings = {'representation_layer': True, 'num_classes': 0}
  config = {**HF, 'architectures': ['ViTModel']}
  write(tmp_path, config, **settings)
  assert foreign.load(tmp_path).config.representation_layer
  write(tmp_path, {**config, 'pooler_act': 'relu'}, **settings)
  with pytest.raises(ValueError, match="pooler_act is 'relu', but"):
    foreign.load(tmp_path)
  # A classifier does not use it.
  write(tmp_path, {**HF, 'pooler_act': 'relu'})
  assert foreign.load(tmp_path).config.num_classes == 5


def test_labels_of_a_base_model_are_ignored(tmp_path):
  labels = {'id2label': {str(i): f'class {i}' for i in range(5)}}
  write(tmp_path, {**HF, **labels, 'architectures': ['ViTModel']},
        num_classes=0)
  loaded = foreign.load(tmp_path)
  assert (loaded.config.num_classes, loaded.preprocess.labels) == (0, ())
  # But a classifier must have its head.
  write(tmp_path, {**HF, **labels}, num_classes=0)
  with pytest.raises(ValueError, match=r'expected \(5,\), found \(0,\)'):
    foreign.load(tmp_path)


@pytest.mark.parametrize(('text', 'words'), [
    ('{"image_mean": 3}', 'malformed'),
    ('{"image_std": [0, 1, 1]}', 'std must be above 0'),
    ('{"resample": 9}', 'resample is 9'),
    ('{"rescale_offset": true}', 'an offset'),
    ('{"rescale_factor": "1/255"}', 'malformed')])
def test_a_malformed_preprocessor_is_an_error(text, words, tmp_path):
  write(tmp_path, HF)
  (tmp_path / 'preprocessor_config.json').write_text(text)
  with pytest.raises(ValueError, match=words):
    foreign.load(tmp_path)


@pytest.mark.parametrize(('processor', 'mean', 'std'), [
    ({'rescale_factor': 1 / 127.5, 'image_mean': [1, 1, 1]}, 0.5, None),
    ({'do_normalize': False}, 0, 1),
    ({'do_rescale': False, 'do_normalize': False}, 0, 1 / 255)])
def test_the_scale_of_pixels_becomes_that_of_images_in_0_to_1(
    processor, mean, std):
  found = huggingface.parse_preprocessor(processor)
  assert found['mean'] == pytest.approx((mean,) * 3)
  assert found.get('std') == (std and pytest.approx((std,) * 3))


# ---------------------------------------------------------------- backbones


def test_a_config_of_two_towers_needs_only_what_differs_from_the_defaults():
  found = huggingface.parse({
      'model_type': 'siglip', 'text_config': {'hidden_size': 3},
      'vision_config': {'hidden_size': 1152, 'num_attention_heads': 16}})
  assert found.families == ('siglip',)
  assert found.model == {'width': 1152, 'num_heads': 16}
  found = huggingface.parse({'model_type': 'clip', 'vision_config': {}})
  assert found.model == {'num_heads': 12, 'gelu': 'quick'}


@pytest.mark.parametrize(('config', 'words'), [
    ({'model_type': 'aimv2_vision_model', 'is_native': True}, 'is_native'),
    ({'model_type': 'vit_mae'}, 'which has the decoder of MAE'),
    ({**HF, 'hidden_act': 'relu'}, "Unknown hidden_act 'relu'"),
    ({'model_type': 'dinov3_vit', 'use_gated_mlp': True,
      'hidden_act': 'gelu'}, "hidden_act is 'gelu'.* only with 'silu'")])
def test_a_missing_component_is_named(config, words):
  with pytest.raises(ValueError, match=words):
    huggingface.parse(config)


def test_the_size_of_an_old_deit_preprocessor_is_a_square():
  found = huggingface.parse_preprocessor({
      'feature_extractor_type': 'DeiTFeatureExtractor', 'size': 256,
      'crop_size': 224, 'do_center_crop': True})
  assert resize_and_crop.parse(found).ops == (
      ops_lib.Resize(256), ops_lib.CentralCrop(224))


def test_the_size_of_an_old_clip_preprocessor_is_the_shorter_side():
  found = huggingface.parse_preprocessor({
      'feature_extractor_type': 'CLIPFeatureExtractor', 'size': 256,
      'crop_size': 224, 'do_center_crop': True})
  assert resize_and_crop.parse(found).ops == (
      ops_lib.Resize(shorter=256, rounding='torchvision'),
      ops_lib.CentralCrop(224))


def test_a_shorter_side_and_a_rectangular_crop_are_read_as_they_are():
  found = resize_and_crop.parse(huggingface.parse_preprocessor({
      'size': {'shortest_edge': 256}, 'do_center_crop': True, 'resample': 3,
      'crop_size': {'height': 224, 'width': 192}}))
  assert found.ops == (
      ops_lib.Resize(shorter=256, method='bicubic', rounding='torchvision'),
      ops_lib.CentralCrop((224, 192)))
  assert resize_and_crop.parse(huggingface.parse_preprocessor({
      'do_resize': False, 'do_center_crop': True, 'crop_size': 32})).ops == (
          ops_lib.CentralCrop((32, 32)),)
