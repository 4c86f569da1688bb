"""Models and settings of earlier versions are refused by name."""

import numpy as np
import pytest

from tests import random_models
import vit_jax
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import backbones
from vit_jax.extras.zoo import removed
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.families import families
from vit_jax.models import factory
from vit_jax.weights import declared

VIT = {**random_models.TINY, 'name': 'vit'}


def test_removed_settings_at_their_defaults_are_read():
  rotary = {'base': 50.0}
  earlier = {**VIT, 'num_heads': 3, 'merge': 0, 'merge_mlp_dim': 0,
             'merge_dim': 0, 'mlp_bias': True, 'pool_norm_affine': True,
             'rotary': {**rotary, 'cls': False, 'video': False}}
  assert factory.parse(earlier) == factory.parse({
      **VIT, 'num_heads': 3, 'rotary': rotary})


@pytest.mark.parametrize('form', ['orbax', 'npz', 'timm'])
def test_an_earlier_conversion_of_naflex_weights_resizes_with_a_note(
    form, tmp_path, monkeypatch):
  metadata = declared.metadata

  def earlier(model):
    found = metadata(model)
    return {**found, 'preprocess': {**found['preprocess'], 'ops': [
        {'op': 'resize_to_patches', 'patch': 8, 'max_patches': 16,
         'method': 'bicubic'}]}}

  monkeypatch.setattr(declared, 'metadata', earlier)
  model = random_models.make({**VIT, 'pooling': 'average'}, side=32)
  model.save(tmp_path / 'x.npz', form=form)
  again = vit_jax.load(tmp_path / 'x.npz', log=None)
  assert again.preprocess == preprocessing.parse({
      'resolution': 32, 'ops': [{'op': 'resize', 'method': 'bicubic'}]})
  assert any('resize_to_patches' in note for note in again.notes)
  wide = np.zeros((20, 50, 3), np.uint8)
  assert again.features([wide, wide[:, :20]]).shape == (2, 12)


def test_every_rule_matches_no_model_that_is_read():
  names = {*backbones.table(), *huggingface.TYPES}
  assert not any(map(removed.sentence, names))
  for family in families.FAMILIES.values():
    removed.check_arrays(
        [family.prefix + row.theirs for row in family.table.rows], path='x')
