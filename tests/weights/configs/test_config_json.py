"""config.json sets what arrays do not determine, and must not contradict them.
"""

import json

import pytest

from tests import random_models
from vit_jax.weights import load as load_lib
from vit_jax.weights import safetensors

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
CONFIGS = {'huggingface': HF, 'timm': TIMM}


def write(folder, family, change=None, **settings):
  safetensors.write(folder / 'model.safetensors',
                    random_models.arrays(family, **settings))
  (folder / 'config.json').write_text(
      json.dumps({**CONFIGS[family], **(change or {})}))


@pytest.mark.parametrize('bare', [True, False])
@pytest.mark.parametrize('family', CONFIGS)
def test_declared_settings_are_used(family, bare, tmp_path):
  write(tmp_path, family)
  loaded = load_lib.load(
      tmp_path / 'model.safetensors' if bare else tmp_path)
  assert (loaded.config.num_heads, loaded.config.gelu) == (3, 'tanh')
  assert f'declared by: {tmp_path / "config.json"}' in '\n'.join(
      loaded.summary)


@pytest.mark.parametrize(('family', 'change', 'words'), [
    ('huggingface', {'hidden_size': 24}, 'patches/kernel: expected .*24'),
    ('huggingface', {'patch_size': 16}, '17 position .*32x32'),
    ('huggingface', {'qkv_bias': False}, 'qkv_bias: expected nothing, found'),
    ('huggingface', {'num_hidden_layers': 12}, r'expected \(12, .*found \(2,'),
    ('huggingface', {'model_type': 'swin'}, "model_type is 'swin'"),
    ('huggingface', {'hidden_size': 'wide'}, 'model.width must be int'),
    ('timm', {'architecture': 'swin_tiny'}, "architecture is 'swin_tiny'"),
    ('timm', {'architecture': 'resnetv2_50x1_bit', 'model_args': {},
              'global_pool': 'avg'},
     'for timm_bit, but the arrays .* timm ViT'),
    ('timm', {'num_classes': 7}, r'expected \(7,\), found \(5,\)'),
    ('timm', {'model_args': [3]}, 'is malformed: AttributeError'),
    ('timm', {'global_pool': 'map'}, 'pooling/probe: expected'),
    ('timm', {'pretrained_cfg': {'mean': 0.5}}, 'is malformed: TypeError')])
def test_the_config_of_another_model_is_an_error(
    family, change, words, tmp_path):
  write(tmp_path, family, change)
  with pytest.raises(ValueError, match=(
      f'(?s)config.json .*{words}.*move the weights out of its folder')):
    load_lib.load(tmp_path / 'model.safetensors')


@pytest.mark.parametrize('text', ['{', '[]', '[' * 100_000])
def test_a_config_that_is_not_a_json_object_is_an_error(text, tmp_path):
  write(tmp_path, 'timm')
  (tmp_path / 'config.json').write_text(text)
  with pytest.raises(ValueError, match='is not JSON|must be a JSON object'):
    load_lib.load(tmp_path)


def test_the_config_of_an_unknown_library_is_ignored_with_a_note(tmp_path):
  write(tmp_path, 'timm')
  (tmp_path / 'config.json').write_text('{"sails": 3}')
  loaded = load_lib.load(tmp_path, {'num_heads': 2})
  assert 'neither a timm nor a Hugging Face' in '\n'.join(loaded.summary)
