"""config.json sets what arrays do not determine, and must not contradict them.
"""

import json

import pytest

from tests.extras.zoo import zoo_models
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo.configs import config_json
from vit_jax.extras.zoo.configs import resize_and_crop

CONFIGS = {'huggingface': zoo_models.HUGGINGFACE_CONFIG,
           'timm': zoo_models.TIMM_CONFIG}


def write(folder, family, processor=None, **change):
  return zoo_models.write_folder(
      folder, family, {**CONFIGS[family], **change}, processor)


@pytest.mark.parametrize('weights', ['', 'model.safetensors'])
@pytest.mark.parametrize('family', CONFIGS)
def test_declared_settings_are_used(family, weights, tmp_path):
  loaded = foreign.load(write(tmp_path, family) / weights)
  assert (loaded.config.num_heads, loaded.config.gelu) == (3, 'tanh')
  assert loaded.settings['num_heads'] == (
      f'declared by {tmp_path / "config.json"}')


def test_the_config_of_an_unknown_library_is_ignored_with_a_note(tmp_path):
  zoo_models.write_folder(tmp_path, 'timm', {'sails': 3})
  loaded = foreign.load(tmp_path, {'num_heads': 2})
  assert 'neither a timm nor a Hugging Face' in '\n'.join(loaded.summary)


PROCESSOR = {
    'crop_size': {'height': 32, 'width': 32}, 'do_center_crop': True,
    'do_convert_rgb': True, 'do_normalize': True, 'do_rescale': True,
    'do_resize': True, 'image_mean': [0.1, 0.2, 0.3],
    'image_processor_type': 'CLIPImageProcessor', 'image_std': [0.9, 0.8, 0.7],
    'resample': 3, 'rescale_factor': 1 / 255, 'size': {'shortest_edge': 40}}


def test_the_processor_of_transformers_5_is_read(tmp_path):
  # Transformers reads the section `image_processor` first.
  write(tmp_path, 'huggingface', processor={'image_mean': [1, 1]})
  file = tmp_path / 'processor_config.json'
  file.write_text(json.dumps({
      'image_processor': PROCESSOR, 'processor_class': 'CLIPProcessor'}))
  loaded = foreign.load(tmp_path)
  assert loaded.preprocess == resize_and_crop.parse({
      'resolution': 32, 'mean': (0.1, 0.2, 0.3), 'std': (0.9, 0.8, 0.7),
      'labels': loaded.preprocess.labels, 'ops': [
          {'op': 'resize', 'shorter': 40, 'method': 'bicubic',
           'rounding': 'torchvision'}, {'op': 'central_crop'}]})
  assert {loaded.settings[name] for name in ('mean', 'std', 'ops')} == {
      f'declared by {file}'}
  # A processor without images leaves the older file.
  write(tmp_path, 'huggingface', processor={'image_std': [0.4, 0.5, 0.6]})
  file.write_text('{"image_seq_length": 3}')
  assert foreign.load(tmp_path).preprocess.std == (0.4, 0.5, 0.6)


def test_a_processor_of_another_size_than_the_positions_is_reported(tmp_path):
  write(tmp_path, 'huggingface', processor={
      **PROCESSOR, 'crop_size': {'height': 16, 'width': 16}})
  loaded = foreign.load(tmp_path)
  assert loaded.preprocess.resolution == (32, 32)
  assert loaded.notes[0].startswith('the declared image size is (16, 16), ')
  loaded = foreign.load(tmp_path, {'resolution': 16})
  assert loaded.preprocess.resolution == (16, 16)
  assert len(loaded.notes) == 1  # The override.
  # Rotary positions are those of any size: that of the processor.
  (tmp_path / 'dinov3').mkdir()
  dinov3 = zoo_models.write_folder(tmp_path / 'dinov3', 'dinov3', {
      'model_type': 'dinov3_vit', 'num_attention_heads': 2, 'image_size': 32,
  }, {**PROCESSOR, 'crop_size': 16}, **zoo_models.DINOV3)
  assert foreign.load(dinov3).preprocess.resolution == (16, 16)


@pytest.mark.parametrize(('processor', 'mean', 'std'), [
    ({'do_normalize': False}, (0.1, 0.2, 0.3), (0.5, 0.5, 0.5)),
    (PROCESSOR, (0.19, 0.36, 0.51), (0.45, 0.4, 0.35))])
def test_c_radio_normalizes_what_its_processor_returns(
    processor, mean, std, tmp_path):
  (tmp_path / 'config.json').write_text(json.dumps({
      'model_type': 'radio', 'norm_mean': [0.1, 0.2, 0.3],
      'norm_std': [0.5] * 3}))
  (tmp_path / 'preprocessor_config.json').write_text(json.dumps(processor))
  found = config_json.read(tmp_path / 'config.json').preprocess
  assert (found['mean'], found['std']) == (
      pytest.approx(mean), pytest.approx(std))
