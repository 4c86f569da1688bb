"""Registers with positions and without are told apart, or asked about."""

import json

import numpy as np
import pytest

import vit_jax
from vit_jax import models
from vit_jax import tree
from vit_jax.inference import model as model_lib
from vit_jax.weights import convert
from vit_jax.weights import names
from vit_jax.weights import safetensors
from vit_jax.weights import write as write_lib
from vit_jax.weights.configs import preprocessing as preprocessing_lib

TINY = {'width': 12, 'depth': 1, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5, 'gelu': 'exact'}


def make(resolution, **settings):
  config = models.parse({**TINY, **settings})
  rng = np.random.default_rng(0)
  return config, {
      name: rng.normal(size=shape.shape).astype(np.float32)
      for name, shape in tree.flatten(
          convert.abstract_params(config, resolution)).items()}


def write(path, params, *, embedded, config=None):
  """Writes what timm would; returns the parameters to be read."""
  expected = dict(params)
  if embedded:
    start = int('cls' in params)
    theirs = np.full_like(params['registers'], 0.5)
    positions = params['positions']
    expected['registers'] = params['registers'] + theirs
    params = {**params, 'positions': np.concatenate(
        [positions[:start], theirs, positions[start:]])}
  path.mkdir()
  safetensors.write(path / 'model.safetensors', write_lib.to_arrays(
      names.FAMILIES['timm'], params))
  if config:
    (path / 'config.json').write_text(json.dumps(config))
  return expected


def check(loaded, expected, resolution):
  assert loaded.resolution == resolution
  found = tree.flatten(loaded.params)
  assert set(found) == set(expected)
  for name, array in expected.items():
    np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize(('resolution', 'settings'), [
    *(((16, 40), {'registers': n}) for n in (1, 2, 4, 7)),
    *(((24, 24), {'registers': n, 'position_cls': False}) for n in (4, 7)),
    ((24, 24), {'registers': 7}), ((16, 16), {'registers': 5}),
    ((16, 16), {'registers': 5, 'position_cls': False}),
    ((24, 24), {'registers': 7, 'pooling': 'average'}),
    ((16, 40), {'registers': 6, 'position': 'none'})])
@pytest.mark.parametrize('target', ['x', 'x.safetensors'])
def test_what_we_write_we_read(resolution, settings, target, tmp_path):
  config, params = make(resolution, **settings)
  model_lib.Model(
      config=config, params=tree.unflatten(params), resolution=resolution,
      preprocess=preprocessing_lib.Preprocess(resolution=resolution)).save(
          tmp_path / target, form='timm')
  loaded = vit_jax.load(tmp_path / target, log=None)
  assert loaded.config == config
  check(loaded, params, resolution)


# With 4 registers, 9 positions are of 3x3 patches, or of 2x2 and all the rest.
@pytest.mark.parametrize(('side', 'registers', 'embedded'), [
    (24, 4, False), (24, 4, True), (16, 5, True), (16, 5, False),
    (24, 8, False)])
def test_the_arguments_say_whether_they_have_positions(
    side, registers, embedded, tmp_path):
  settings = {'registers': registers, 'position_cls': embedded}
  config, params = make((side, side), **settings)
  arguments = {'img_size': side, 'embed_dim': 12, 'depth': 1, 'num_heads': 2,
               'mlp_ratio': 20.5 / 12, 'patch_size': 8,
               'reg_tokens': registers, 'no_embed_class': not embedded}
  for said in (arguments, {**arguments, 'img_size': None},
               {**arguments, 'no_embed_class': None}):
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    expected = write(folder, params, embedded=embedded, config={
        'architecture': 'vit_base_patch16_224', 'model_args': said})
    if said['no_embed_class'] is None and not embedded:
      # timm's own default is that they have; then the size must be another.
      with pytest.raises(ValueError, match='img_size: expected'):
        convert.read(folder)
      continue
    loaded = convert.read(folder)
    assert loaded.config == config
    check(loaded, expected, (side, side))


def test_arguments_that_deny_each_other_are_an_error(tmp_path):
  _, params = make((24, 24), registers=4)
  write(tmp_path / 'x', params, embedded=True, config={
      'architecture': 'vit_base_patch16_224', 'model_args': {
          'img_size': 24, 'embed_dim': 12, 'depth': 1, 'num_heads': 2,
          'mlp_ratio': 20.5 / 12, 'patch_size': 8, 'no_embed_class': True}})
  with pytest.raises(ValueError, match='img_size: expected .*found 14 posit'):
    convert.read(tmp_path / 'x')


# 4x4 patches are as many as 3x3, a class token and 6 registers.
def test_what_may_be_two_grids_is_asked_about(tmp_path):
  _, large = make((32, 32), registers=6, position_cls=False)
  expected = write(tmp_path / 'large', large, embedded=False)
  _, small = make((24, 24), registers=6)
  folded = write(tmp_path / 'small', small, embedded=True)
  for name in ('large', 'small'):
    with pytest.raises(
        ValueError, match='16 position embeddings with a class token and 6 reg'
                          'isters may be those of 3x3 patches, or of 4x4 '
                          'patches.*resolution='):
      convert.read(tmp_path / name, {'num_heads': 2})
  check(convert.read(tmp_path / 'large', {'num_heads': 2, 'resolution': 32}),
        expected, (32, 32))
  check(convert.read(tmp_path / 'small', {'num_heads': 2, 'resolution': 24}),
        folded, (24, 24))
  check(convert.read(tmp_path / 'large', {
      'num_heads': 2, 'position_cls': False}), expected, (32, 32))
  check(convert.read(tmp_path / 'small', {
      'num_heads': 2, 'position_cls': True}), folded, (24, 24))


@pytest.mark.parametrize('embedded', [False, True])
def test_the_resolution_tells_a_grid_that_is_not_square(embedded, tmp_path):
  _, params = make((16, 40), registers=2, position_cls=embedded)
  expected = write(tmp_path / 'x', params, embedded=embedded)
  check(convert.read(tmp_path / 'x', {
      'num_heads': 2, 'resolution': (16, 40)}), expected, (16, 40))
