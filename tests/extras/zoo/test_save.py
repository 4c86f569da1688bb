"""Files of other libraries: what they cannot hold is refused or noted."""

import dataclasses

from tests.commands.test_convert import source  # noqa: F401
import vit_jax


def test_a_note_names_the_epsilons_of_a_network_in_timm(tmp_path):
  model = vit_jax.create('R+Ti/16', depth=1, num_classes=3, resolution=32)
  notes = model.save(tmp_path / 'x', form='timm')
  assert 'backbone.std_epsilon=0.0, this model with 1e-05' in ' '.join(notes)
  config = vit_jax.load(tmp_path / 'x', log=None).config
  assert dataclasses.replace(config, variant='R+Ti/16') == model.config
