"""config.json sets what arrays do not determine, and must not contradict them.
"""

import json

import pytest

from tests import random_models
from vit_jax.weights import load as load_lib
from vit_jax.weights import safetensors

CONFIGS = {'huggingface': random_models.HUGGINGFACE_CONFIG,
           'timm': random_models.TIMM_CONFIG}


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


def test_the_config_of_an_unknown_library_is_ignored_with_a_note(tmp_path):
  write(tmp_path, 'timm')
  (tmp_path / 'config.json').write_text('{"sails": 3}')
  loaded = load_lib.load(tmp_path, {'num_heads': 2})
  assert 'neither a timm nor a Hugging Face' in '\n'.join(loaded.summary)
