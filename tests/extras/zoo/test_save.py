"""Files of other libraries: what they cannot hold is refused or noted."""

import dataclasses

import pytest

from tests import random_models
from tests.commands.test_convert import source  # noqa: F401
from tests.weights import test_save as trunk
import vit_jax

save = trunk.save


@pytest.mark.parametrize('changes', [
    {'pixel_dtype': 'uint16', 'value_range': (0, 10_000)},
    {'value_range': (0, 128)}])
def test_timm_gets_no_models_of_other_than_8_bit_images(changes, tmp_path):
  model = random_models.make_tiny()
  model = dataclasses.replace(
      model, preprocess=dataclasses.replace(model.preprocess, **changes))
  with pytest.raises(ValueError, match='value_range .* Save it as orbax'):
    model.save(tmp_path / 'x', form='timm')


@pytest.mark.parametrize('settings', [
    {}, {'pooling': 'average'}, {'position_cls': False, 'num_classes': 0}],
                         ids=str)
def test_an_npz_file_has_no_register(settings, tmp_path):
  with pytest.raises(ValueError, match="of 'backbone'. Save it as orbax"):
    save(tmp_path / 'x.npz', 'npz', registers=1, **settings)


def test_a_note_names_the_epsilons_of_a_network_in_timm(tmp_path):
  model = vit_jax.create('R+Ti/16', depth=1, num_classes=3, resolution=32)
  notes = model.save(tmp_path / 'x', form='timm')
  assert 'backbone.std_epsilon=0.0, this model with 1e-05' in ' '.join(notes)
  config = vit_jax.load(tmp_path / 'x', log=None).config
  assert dataclasses.replace(config, variant='R+Ti/16') == model.config
