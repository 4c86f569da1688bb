"""What is written says what it is; what it cannot say is noted, or refused."""

import dataclasses
import json

import numpy as np
import pytest

from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax.weights import convert
from vit_jax.weights import safetensors
from vit_jax.weights import write as write_lib
from vit_jax.weights.configs import preprocessing as preprocessing_lib
from vit_jax.weights.configs import sidecars

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
PLAIN = preprocessing_lib.Preprocess(resolution=(32, 32))


def write(target, form, *, resolution=(32, 32), preprocess=None,
          positions='linear', **settings):
  """Writes a model; returns its config and what was noted."""
  config = models.parse({**TINY, **settings} if 'name' not in settings
                        else settings)
  shapes = tree.flatten(convert.abstract_params(config, resolution))
  rng = np.random.default_rng(0)
  params = tree.unflatten({
      name: rng.normal(size=shape.shape).astype(np.float32)
      for name, shape in shapes.items()})
  return config, write_lib.write(
      target, form, config, params, resolution=resolution, positions=positions,
      preprocess=preprocess or dataclasses.replace(
          PLAIN, resolution=resolution))


@pytest.mark.parametrize(('settings', 'noted', 'given'), [
    ({}, [], {}),
    ({'gelu': 'exact'}, ["gelu='exact'"], {'gelu': 'exact'}),
    ({'pooling': 'average', 'cls': True}, ["pooling='average'"],
     {'pooling': 'average'}),
    ({'resolution': (24, 48)}, ['resolution=(24, 48)'],
     {'resolution': (24, 48)}),
    ({'layer_norm_epsilon': 1e-5, 'dropout': 0.25},
     ['layer_norm_epsilon=1e-05', 'dropout=0.25'],
     {'layer_norm_epsilon': 1e-5, 'dropout': 0.25}),
    ({'positions': 'cubic'}, ["positions='cubic'"], {}),
    ({'width': 192, 'mlp_dim': 768, 'num_heads': 3, 'depth': 1, 'patch': 16},
     ['depth=1'], {'depth': 1}),
    ({'preprocess': dataclasses.replace(PLAIN, crop=0.5, std=(1., 2., 3.))},
     ['std=(1.0, 2.0, 3.0)', 'crop=0.5'], {'crop': 0.5, 'std': (1., 2., 3.)}),
    ({'position': 'none'}, ["position='none'", 'resolution=(32, 32)'],
     {'position': 'none', 'resolution': (32, 32)}),
    ({'final_norm': False}, ['final_norm=False'], {'final_norm': False}),
], ids=str)
def test_an_npz_notes_what_a_reader_must_be_told_and_nothing_else(
    settings, noted, given, tmp_path):
  config, notes = write(tmp_path / 'x', 'npz', **settings)
  assert [note.split(': load it with ')[1] for note in notes] == noted
  assert convert.read(tmp_path / 'x', given).config == config


def test_two_resolutions_are_noted(tmp_path):
  _, notes = write(tmp_path / 'x', 'npz', preprocess=dataclasses.replace(
      PLAIN, resolution=(48, 48)))
  assert 'images are made (48, 48), and positions are for (32, 32)' in notes[-1]


def test_a_long_setting_is_noted_in_few_words(tmp_path):
  labels = tuple(f'class number {i}' for i in range(5))
  _, notes = write(tmp_path / 'x', 'npz', preprocess=dataclasses.replace(
      PLAIN, labels=labels))
  assert notes == ["npz does not say labels=('class number 0', ... 5 in all) "
                   "and reads back as labels=(): load it with "
                   "labels=('class number 0', ... 5 in all)"]


@pytest.mark.parametrize('target', ['x.safetensors', 'x'])
@pytest.mark.parametrize('settings', [
    {'width': 768, 'mlp_dim': 3072, 'num_heads': 8, 'depth': 1, 'patch': 16},
    {'pooling': 'average', 'cls': True},
    {'resolution': (24, 48), 'positions': 'linear'},
    {'gelu': 'tanh', 'layer_norm_epsilon': 1e-4},
    {'preprocess': dataclasses.replace(PLAIN, resolution=(40, 40), crop=0.5)},
], ids=str)
def test_safetensors_say_all_of_it_themselves(target, settings, tmp_path):
  config, _ = write(tmp_path / target, 'timm', **settings)
  loaded = convert.read(tmp_path / target)
  assert loaded.config == config
  assert loaded.resolution == settings.get('resolution', (32, 32))
  assert loaded.positions == settings.get('positions', 'linear')
  assert loaded.preprocess == settings.get('preprocess', dataclasses.replace(
      PLAIN, resolution=loaded.resolution))


def test_the_header_says_the_model_its_images_and_their_preparation(tmp_path):
  config, _ = write(tmp_path / 'x', 'huggingface')
  metadata = safetensors.open_file(tmp_path / 'x/model.safetensors').metadata
  assert metadata['format'] == 'pt'
  assert json.loads(metadata['vit_jax']) == {
      'model': schema.to_plain(config), 'preprocess': schema.to_plain(PLAIN),
      'resolution': [32, 32], 'positions': 'linear'}


@pytest.mark.parametrize(('target', 'form', 'settings', 'words'), [
    ('x', 'timm', {'layer_norm_epsilon': 1e-4}, 'layer_norm_epsilon=1e-06'),
    ('x.safetensors', 'timm', {'gelu': 'tanh'}, "gelu='exact'"),
    ('x', 'huggingface', {'preprocess': dataclasses.replace(
        PLAIN, crop=0.5)}, 'no place for crop=0.5')])
def test_what_the_library_does_otherwise_is_noted(
    target, form, settings, words, tmp_path):
  _, notes = write(tmp_path / target, form, **{'gelu': 'exact', **settings})
  assert len(notes) == 1 and words in notes[0] and 'vit_jax alone' in notes[0]
  _, notes = write(tmp_path / f'other{target}', form, gelu='exact')
  assert notes == []


def test_nothing_is_written_that_cannot_be_read_back(tmp_path, monkeypatch):
  monkeypatch.setattr(
      write_lib.npz, 'write', lambda path, _: path.write_bytes(b'PK\3\4 rubbish'))
  with pytest.raises(ValueError, match='truncated or damaged'):
    write(tmp_path / 'x', 'npz')
  assert not list(tmp_path.iterdir())


# ------------------------------------------------------------- timm's config


def config_of(**settings):
  plain = schema.to_plain(models.parse({'num_classes': 3, **settings}))
  return sidecars.timm(plain, (64, 64), PLAIN)


@pytest.mark.parametrize(('variant', 'name', 'arguments'), [
    ('R50x1', 'resnetv2_50x1_bit', None),
    ('R50x3', 'resnetv2_50x3_bit', None),
    ('R101x1', 'resnetv2_101x1_bit', None),
    ('R152x4', 'resnetv2_152x4_bit', None),
    ('R50x2', 'resnetv2_50x1_bit',
     {'stem_chs': 128, 'channels': [512, 1024, 2048, 4096]}),
    # timm multiplies these by two.
    ('R152x1', 'resnetv2_152x2_bit',
     {'stem_chs': 32, 'channels': [128, 256, 512, 1024]})])
def test_a_resnet_is_one_of_timms_or_made_of_one_of_its_stages(
    variant, name, arguments):
  config = config_of(variant=variant)
  assert (config['architecture'], config.get('model_args')) == (name, arguments)


def test_a_hybrid_is_named_by_its_network_and_its_encoder_by_arguments():
  config = config_of(variant='R50+B/32', num_heads=8)
  assert config['architecture'] == 'vit_large_r50_s32_224'
  arguments = config['model_args']
  assert {name: arguments[name] for name in (
      'embed_dim', 'depth', 'num_heads', 'patch_size', 'mlp_ratio')} == {
          'embed_dim': 768, 'depth': 12, 'num_heads': 8, 'patch_size': 1,
          'mlp_ratio': 4.0}


@pytest.mark.parametrize('settings', [
    {'variant': 'R200x3'},
    {'name': 'resnet', 'backbone': {'depths': (1, 2), 'preactivation': True}},
    {'variant': 'R50+B/16', 'backbone': {'width': 128}},
    {**TINY, 'backbone': {'depths': (1, 2)}, 'patch': 1}], ids=str)
def test_a_network_that_timm_cannot_build_has_no_folder(settings):
  with pytest.raises(ValueError, match=(
      r'timm has no architecture for .*backbone\.depths=.* Write the weights '
      r'alone: --target=FILE\.safetensors')):
    config_of(**settings)


@pytest.mark.parametrize(('mlp_dim', 'width'), [
    (8192, 1664), (6144, 1408), (20, 12), (50, 24), (49, 36)])
def test_the_ratio_gives_the_mlp_its_width_again(mlp_dim, width):
  ratio = config_of(**{**TINY, 'mlp_dim': mlp_dim, 'width': width})[
      'model_args']['mlp_ratio']
  assert int(width * ratio) == mlp_dim
