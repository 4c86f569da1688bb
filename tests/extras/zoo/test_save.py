"""Files of other libraries: what they cannot hold is refused or noted."""

import dataclasses
import json

import pytest

from tests.commands.test_convert import source  # noqa: F401
import vit_jax
from vit_jax.extras.zoo import foreign


def test_a_note_names_the_epsilons_of_a_network_in_timm(tmp_path):
  model = vit_jax.create('R+Ti/16', depth=1, num_classes=3, resolution=32)
  notes = model.save(tmp_path / 'x', form='timm')
  assert 'backbone.std_epsilon=0.0, this model with 1e-05' in ' '.join(notes)
  config = vit_jax.load(tmp_path / 'x', log=None).config
  assert dataclasses.replace(config, variant='R+Ti/16') == model.config


@pytest.mark.parametrize(('activation', 'problem'), [
    ('softmax', None), ('sigmoid', 'multi_label_classification'),
    ('none', 'regression')])
def test_config_json_says_what_logits_are(tmp_path, activation, problem):
  model = vit_jax.create('Ti/16', depth=1, num_classes=3, resolution=32)
  model = dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, activation=activation))
  model.save(tmp_path / 'x', form='timm')
  config = json.loads((tmp_path / 'x' / 'config.json').read_text())
  assert config.get('problem_type') == problem
  found = foreign.load(tmp_path / 'x', metadata=False)
  assert found.preprocess.activation == activation
