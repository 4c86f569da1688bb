"""A load reports whether settings were declared, inferred or assumed."""

import json
import pathlib

import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
import vit_jax
from vit_jax.extras.zoo import foreign
from vit_jax.weights import weights as weights_lib


def load(tmp_path, family, settings, **overrides):
  return foreign.load(
      zoo_models.write(tmp_path / 'x', family, **settings), overrides)


def given(loaded):
  return {name for name, origin in loaded.settings.items()
          if origin == weights_lib.GIVEN}


@pytest.mark.parametrize(('name', 'mean', 'origin'), [
    ('vitl16-sat493m', 0.430, 'assumed, as its name has sat493m'),
    ('vitl16-lvd1689m', 0.485, 'assumed, as for a Hugging Face DINOv3')])
def test_satellite_weights_are_recognized_by_their_name(
    name, mean, origin, tmp_path):
  path = tmp_path / name
  zoo_models.write(path, 'dinov3', **zoo_models.DINOV3)
  loaded = foreign.load(path, {'num_heads': 2})
  assert loaded.preprocess.mean[0] == mean
  assert loaded.settings['mean'] == loaded.settings['std'] == origin


@pytest.mark.parametrize(('config', 'origin'), [
    (None, 'assumed, as ViT-Ti has (if wrong, all outputs are wrong)'),
    ({'architecture': 'vit_tiny_patch16_224'},
     'inferred from the architecture vit_tiny_patch16_224'),
    ({'architecture': 'vit_tiny_patch16_224', 'model_args': {'num_heads': 6}},
     'declared by config.json')])
def test_the_origin_of_the_heads_is_reported(
    config, origin, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  if config:
    (tmp_path / 'config.json').write_text(json.dumps(config))
  loaded = foreign.load(zoo_models.write(
      pathlib.Path('x'), 'timm', resolution=(224, 224), variant='Ti/16',
      num_classes=1))
  assert loaded.settings['num_heads'] == origin


def test_a_run_declares_its_settings_unless_they_are_given(tmp_path):
  random_models.make_tiny(num_classes=5).save(tmp_path / 'x')
  lines = []
  vit_jax.load(tmp_path / 'x', log=lines.append, std=0.25)
  assert lines[2:] == [
      '  declared by its config: mean=(0.485, 0.456, 0.406), '
      'num_heads=2, '
      'ops=resize(shorter=40, method=bicubic, rounding=torchvision), '
      'central_crop(size=(32, 32), rounding=torchvision), '
      'labels=a, b, c, d, ...']
  assert given(vit_jax.load(
      tmp_path / 'x', log=None, ops=[{'op': 'resize'}])) == {'ops'}
