"""Models and settings of earlier versions are refused by name."""

import json

import numpy as np
import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
import vit_jax
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import removed
from vit_jax.extras.zoo import safetensors
from vit_jax.models import factory
from vit_jax.weights import declared
from vit_jax.weights.formats import npz

VIT = {**random_models.TINY, 'name': 'vit'}
WORDS = {
    'vjepa': 'does not support V-JEPA 2',
    'merger': 'does not support Qwen3-ViT',
    'mlcd': "does not support MLCD's", 'tips': "does not support Scenic's",
    'naflex': "does not support evaluation at each image's own grid"}


def refused(kind):
  return pytest.raises(ValueError, match=(
      f'{WORDS[kind]}.* last commit that does is {removed.LAST}'))


@pytest.mark.parametrize(('config', 'kind'), [
    ({'model_type': 'vjepa2'}, 'vjepa'),
    ({'model_type': 'mlcd_vision_model'}, 'mlcd'),
    *(({'architecture': name}, 'merger') for name in (
        'qwen3_vit_88m', 'qwen3_vit_306m_merge', 'qwen3_vit_416m_enc',
        'deepseek_vit_412m_align', 'deepseek_vit_412m.deepseek_v4_1_flash'))],
                         ids=str)
def test_a_config_json_of_a_removed_model_is_refused(config, kind, tmp_path):
  safetensors.write(tmp_path / 'x.safetensors', zoo_models.arrays('timm'))
  (tmp_path / 'config.json').write_text(json.dumps(config))
  with refused(kind):
    vit_jax.load(tmp_path, log=None)


@pytest.mark.parametrize(('name', 'kind'), [
    ('encoder.embeddings.patch_embeddings.proj.weight', 'vjepa'),
    ('vjepa2.encoder.embeddings.patch_embeddings.proj.weight', 'vjepa'),
    ('encoder.merger.fc1.weight', 'merger'), ('merger.fc1.weight', 'merger'),
    ('encoder.aligner.fc1.weight', 'merger'),
    ('vision_model.class_pos_emb', 'mlcd'), ('class_pos_emb', 'mlcd'),
    ('encoder/ToTokenSequence_0/embedding/kernel', 'tips')])
def test_arrays_of_a_removed_model_are_refused(name, kind, tmp_path):
  form = npz if '/' in name else safetensors
  form.write(tmp_path / 'x', {
      **zoo_models.arrays('timm'), name: np.zeros((2, 2), np.float32)})
  with refused(kind):
    vit_jax.load(tmp_path / 'x', log=None)


@pytest.mark.parametrize(('section', 'kind'), [
    ({'variant': 'qwen3_vit_88m'}, 'merger'),
    *(({**VIT, **settings}, kind) for settings, kind in (
        ({'rotary': {'video': True}}, 'vjepa'),
        ({'rotary': {'cls': True}, 'position': 'none'}, 'mlcd'),
        ({'merge': 2, 'merge_mlp_dim': 4, 'merge_dim': 4}, 'merger'),
        ({'pool_norm_affine': False}, 'merger'),
        ({'mlp_bias': False}, 'merger'))),
    ({**VIT, 'name': 'backbone', 'merge': 2}, 'merger')], ids=str)
def test_a_model_with_a_removed_setting_is_refused(section, kind):
  with refused(kind):
    factory.parse(section)


def test_removed_settings_at_their_defaults_are_read():
  rotary = {'base': 50.0}
  earlier = {**VIT, 'num_heads': 3, 'merge': 0, 'merge_mlp_dim': 0,
             'merge_dim': 0, 'mlp_bias': True, 'pool_norm_affine': True,
             'rotary': {**rotary, 'cls': False, 'video': False}}
  assert factory.parse(earlier) == factory.parse({
      **VIT, 'num_heads': 3, 'rotary': rotary})


def test_the_operation_of_naflex_is_refused():
  with refused('naflex'):
    preprocessing.parse({'resolution': 32, 'ops': [
        {'op': 'resize_to_patches', 'patch': 8}]})


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
  from vit_jax.extras.zoo import backbones
  from vit_jax.extras.zoo.configs import huggingface
  from vit_jax.extras.zoo.families import families
  names = {*backbones.table(), *huggingface.TYPES}
  assert not any(map(removed.sentence, names))
  for family in families.FAMILIES.values():
    removed.check_arrays(
        [family.prefix + row.theirs for row in family.table.rows], path='x')
