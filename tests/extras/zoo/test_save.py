"""Files of other libraries: what they cannot hold is refused or noted."""

import dataclasses

import numpy as np
import pytest

from tests import random_models
from tests.commands import test_convert
from tests.commands.test_convert import source  # noqa: F401
from tests.weights import test_save as trunk

save = trunk.save


def test_parameters_that_could_not_be_loaded_are_not_saved(tmp_path):
  trunk.test_parameters_that_could_not_be_loaded_are_not_saved(
      'timm', np.int32(1), 'cls has dtype int32', tmp_path)


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


@pytest.mark.parametrize('form', ['timm', 'huggingface'])
def test_nothing_is_overwritten(form, tmp_path):
  trunk.test_nothing_is_overwritten(form, tmp_path)


@pytest.mark.parametrize(('target', 'settings', 'words'), [
    ('x', {'layer_norm_epsilon': 1e-4, 'gelu': 'exact'},
     'layer_norm_epsilon=1e-06'),
    ('x.safetensors', {'gelu': 'tanh'}, "gelu='exact'")])
def test_a_note_names_settings_that_the_library_ignores(
    target, settings, words, tmp_path):
  notes = save(tmp_path / target, 'timm', **settings)
  assert len(notes) == 1 and words in notes[0]
  assert save(tmp_path / f'other{target}', 'timm', gelu='exact') == []


def test_half_precision_halves_the_file_and_rounds_once(
    source, tmp_path, capsys):  # noqa: F811
  test_convert.test_half_precision_halves_the_file_and_rounds_once(
      'timm', 'bfloat16', source, tmp_path, capsys)
