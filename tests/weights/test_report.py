"""A load says of every setting whether it was declared, inferred or assumed."""

import json

import pytest

from tests import random_models
import vit_jax
from vit_jax.weights import foreign
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.configs import declared
from vit_jax.weights.formats import npz
from vit_jax.weights.formats import safetensors

RESNET = random_models.RESNET
FAMILIES = {
    'npz': {}, 'bit': RESNET, 'timm': {}, 'timm_bit': RESNET,
    'resnet': {**RESNET, 'backbone': {'depths': (1, 2), 'width': 32}},
    'huggingface': {}, 'scratch': {'final_norm': False},
    'dinov2': {'layer_scale': 1.0, 'num_classes': 0},
    'siglip': {'pooling': 'average'},
    'clip': {'stem_norm': 'tokens', 'num_classes': 0}}


def load(tmp_path, family, settings, **overrides):
  arrays = random_models.arrays(family, **settings)
  (npz if family in ('npz', 'bit', 'resnet') else safetensors).write(
      tmp_path / 'x', arrays)
  return foreign.load(tmp_path / 'x', overrides)


def lines_of(loaded, name):
  return [line for line in loaded.summary
          if f' {name}=' in line and 'overrides' not in line]


@pytest.mark.parametrize('family', FAMILIES)
def test_every_setting_of_every_family_has_one_origin(family, tmp_path):
  settings = FAMILIES[family]
  vit = settings.get('name') != 'resnet'
  overrides = {'num_heads': 2} if vit else {}
  overrides |= {'gelu': 'quick'} if family == 'clip' else {}
  loaded = load(tmp_path, family, settings, **overrides)
  assert set(loaded.settings) == set(declared.REPORTED)
  for name, origin in loaded.settings.items():
    if name == 'heads':
      assert origin.status == 'given' or not vit
    elif name != 'labels' or loaded.config.num_classes:
      assert origin.status == 'assumed'
      (line,) = lines_of(loaded, name)
      assert line.startswith('  assumed')


def test_a_family_names_whose_values_are_assumed(tmp_path):
  loaded = load(tmp_path, 'dinov2', FAMILIES['dinov2'], num_heads=2, crop=0.5)
  (line,) = lines_of(loaded, 'mean')
  assert line == (
      '  assumed, as for a Hugging Face DINOv2: mean=(0.485, 0.456, 0.406), '
      'std=(0.229, 0.224, 0.225)')
  assert loaded.settings['crop'] == weights_lib.Origin('given')
  assert not lines_of(loaded, 'crop')


@pytest.mark.parametrize(('config', 'origin', 'line'), [
    (None, ('assumed', 'as ViT-Ti has'),
     'assumed: 3 heads; if wrong, all outputs are wrong: num_heads=N'),
    ({'architecture': 'vit_tiny_patch16_224'},
     ('inferred', 'the architecture vit_tiny_patch16_224'), ': heads=3'),
    ({'architecture': 'vit_tiny_patch16_224', 'model_args': {'num_heads': 6}},
     ('declared', 'config.json'), ', heads=6')])
def test_the_origin_of_the_heads_is_reported(
    config, origin, line, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  safetensors.write('x', random_models.arrays(
      'timm', (224, 224), variant='Ti/16', num_classes=1))
  if config:
    (tmp_path / 'config.json').write_text(json.dumps(config))
  loaded = foreign.load('x')
  assert loaded.settings['heads'] == weights_lib.Origin(*origin)
  assert line in '\n'.join(loaded.summary)


def test_heads_in_the_shapes_of_arrays_are_inferred(tmp_path):
  loaded = load(tmp_path, 'npz', {})
  assert '  inferred from the arrays: heads=2' in loaded.summary


def test_given_operations_are_not_declared(tmp_path):
  random_models.make_tiny(num_classes=5).save(tmp_path / 'x')
  settings = vit_jax.load(
      tmp_path / 'x', log=None, ops=[{'op': 'resize'}]).settings
  assert {name for name, origin in settings.items()
          if origin.status == 'given'} == {'resize', 'crop', 'interpolation'}


def test_a_run_declares_its_settings(tmp_path):
  random_models.make_tiny(num_classes=5).save(tmp_path / 'x')
  lines = []
  vit_jax.load(tmp_path / 'x', log=lines.append, std=0.25)
  assert lines[2:] == [
      '  declared by its config: model, mean=(0.485, 0.456, 0.406), '
      'resize=shorter side to 40, crop=32x32, interpolation=bicubic, '
      'labels=a, b, c, d, ..., heads=2']
