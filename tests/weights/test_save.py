"""A model is saved exactly and atomically, or refused."""

import dataclasses

import numpy as np
import pytest

from tests import random_models
from vit_jax.weights import save as save_lib


def save(target, form, **settings):
  """Saves a model; returns the notes."""
  return random_models.make(
      {**random_models.TINY, **settings}, side=32).save(target, form=form)


@pytest.mark.parametrize(('form', 'value', 'words'), [
    ('npz', np.float32(np.nan), 'cls holds 12 of 12 values that are NaN'),
    ('orbax', np.float64(1e300), 'cls holds 12 of 12 values'),
    ('timm', np.int32(1), 'cls has dtype int32')])
def test_parameters_that_could_not_be_loaded_are_not_saved(
    form, value, words, tmp_path):
  model = random_models.make_tiny()
  params = {**model.params, 'cls': np.full((1, 12), value)}
  with pytest.raises(ValueError, match=f'The model: {words}'):
    model.with_params(params).save(tmp_path / 'x', form=form)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('form', ['timm', 'huggingface'])
@pytest.mark.parametrize('changes', [
    {'pixel_dtype': 'uint16', 'value_range': (0, 10_000)},
    {'value_range': (0, 128)}])
def test_libraries_of_8_bit_images_get_no_other_models(form, changes, tmp_path):
  model = random_models.make_tiny()
  model = dataclasses.replace(
      model, preprocess=dataclasses.replace(model.preprocess, **changes))
  with pytest.raises(ValueError, match='value_range .* Save it as orbax'):
    model.save(tmp_path / 'x', form=form)


@pytest.mark.parametrize('settings', [
    {}, {'pooling': 'average'}, {'position_cls': False, 'num_classes': 0}],
                         ids=str)
def test_an_npz_file_has_no_register(settings, tmp_path):
  with pytest.raises(ValueError, match='registers=1, only 0. Save .* as orbax'):
    save(tmp_path / 'x.npz', 'npz', registers=1, **settings)


@pytest.mark.parametrize('form', save_lib.FORMATS)
def test_nothing_is_overwritten(form, tmp_path):
  (tmp_path / 'x').write_text('precious')
  with pytest.raises(FileExistsError, match='exists'):
    save(tmp_path / 'x', form)
  assert (tmp_path / 'x').read_text() == 'precious'
  assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(('target', 'form', 'settings', 'words'), [
    ('x', 'npz', {'gelu': 'exact'}, "gelu='tanh', this model with 'exact'"),
    ('x', 'timm', {'layer_norm_epsilon': 1e-4, 'gelu': 'exact'},
     'layer_norm_epsilon=1e-06'),
    ('x.safetensors', 'timm', {'gelu': 'tanh'}, "gelu='exact'")])
def test_a_note_names_settings_that_the_library_ignores(
    target, form, settings, words, tmp_path):
  notes = save(tmp_path / target, form, **settings)
  assert len(notes) == 1 and words in notes[0]
  notes = save(tmp_path / f'other{target}', form,
               gelu='tanh' if form == 'npz' else 'exact')
  assert notes == []
