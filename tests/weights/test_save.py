"""A model is saved exactly and atomically, or refused."""

import dataclasses
import json

import numpy as np
import pytest

from tests import random_models
from vit_jax import schema
from vit_jax import tree
from vit_jax.weights import load as load_lib
from vit_jax.weights import safetensors
from vit_jax.weights import save as save_lib
from vit_jax.weights.configs import preprocessing

PLAIN = preprocessing.Preprocess(resolution=(32, 32))


def save(target, form, *, resolution=(32, 32), preprocess=PLAIN,
         positions='linear', **settings):
  """Saves a model; returns its config and the notes."""
  config = random_models.config_of(**settings)
  return config, save_lib.save(
      target, form, config,
      tree.unflatten(random_models.params(config, resolution)),
      resolution=resolution, positions=positions, preprocess=preprocess,
      origin='test')


@pytest.mark.parametrize(('form', 'value', 'words'), [
    ('npz', np.float32(np.nan), 'cls holds 12 of 12 values that are NaN'),
    ('orbax', np.float64(1e300), 'cls holds 12 of 12 values'),
    ('timm', np.int32(1), 'cls has dtype int32')])
def test_parameters_that_could_not_be_loaded_are_not_saved(
    form, value, words, tmp_path):
  model = random_models.make_tiny()
  params = {**model.params, 'cls': np.full((1, 12), value)}
  with pytest.raises(ValueError, match=f'The model: {words}'):
    dataclasses.replace(model, params=params).save(tmp_path / 'x', form=form)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('form', save_lib.FORMATS)
def test_nothing_is_overwritten(form, tmp_path):
  (tmp_path / 'x').write_text('precious')
  with pytest.raises(FileExistsError, match='exists'):
    save(tmp_path / 'x', form)
  assert (tmp_path / 'x').read_text() == 'precious'
  assert len(list(tmp_path.iterdir())) == 1


def test_the_metadata_contains_the_model_and_the_preprocessing(tmp_path):
  expected = {'preprocess': schema.to_plain(PLAIN), 'resolution': [32, 32],
              'positions': 'linear'}
  config, _ = save(tmp_path / 'x', 'huggingface')
  metadata = safetensors.open_file(tmp_path / 'x/model.safetensors').metadata
  assert metadata['format'] == 'pt'
  expected['model'] = schema.to_plain(config)
  assert json.loads(metadata['vit_jax']) == expected
  save(tmp_path / 'y.npz', 'npz')
  assert json.loads((tmp_path / 'y.json').read_text()) == expected


@pytest.mark.parametrize(('target', 'form', 'settings', 'words'), [
    ('x', 'npz', {'gelu': 'exact'}, "gelu='tanh', this model with 'exact'"),
    ('x', 'timm', {'layer_norm_epsilon': 1e-4, 'gelu': 'exact'},
     'layer_norm_epsilon=1e-06'),
    ('x.safetensors', 'timm', {'gelu': 'tanh'}, "gelu='exact'")])
def test_a_note_says_what_the_formats_library_computes_differently(
    target, form, settings, words, tmp_path):
  _, notes = save(tmp_path / target, form, **settings)
  assert len(notes) == 1 and words in notes[0]
  _, notes = save(tmp_path / f'other{target}', form,
                  gelu='tanh' if form == 'npz' else 'exact')
  assert notes == []


def test_a_model_that_started_from_a_variant_is_saved_without_its_name(
    tmp_path):
  save(tmp_path / 'x', 'timm', **{**random_models.TINY, 'variant': 'B/16'})
  assert load_lib.load(tmp_path / 'x').config.variant == ''
