"""Models and settings of earlier versions are refused by name."""

import json

import numpy as np
import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
import vit_jax
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import backbones
from vit_jax.extras.zoo import removed
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.families import families
from vit_jax.models import factory
from vit_jax.weights import declared

VIT = {**random_models.TINY, 'name': 'vit'}


def load_config(config, path):
  zoo_models.write(path / 'x.safetensors', 'timm')
  (path / 'config.json').write_text(json.dumps(config))
  vit_jax.load(path, log=None)


def load_array(name, path):
  zoo_models.write(path / 'x', 'npz' if '/' in name else 'timm', (
      zoo_models.with_zeros(zoo_models.arrays('timm'), {name: (2, 2)})))
  vit_jax.load(path / 'x', log=None)


def parse(settings, _):
  factory.parse({**VIT, **settings})


def parse_op(op, _):
  preprocessing.parse({'resolution': 32, 'ops': [op]})


@pytest.mark.parametrize(('words', 'read', 'examples'), [
    ('V-JEPA 2', load_config, [{'model_type': 'vjepa2'}]),
    ('V-JEPA 2', load_array, [
        'encoder.embeddings.patch_embeddings.proj.weight',
        'vjepa2.encoder.embeddings.patch_embeddings.proj.weight']),
    ('V-JEPA 2', parse, [{'rotary': {'video': True}}]),
    ('Qwen3-ViT', load_config, [{'architecture': name} for name in (
        'qwen3_vit_88m', 'qwen3_vit_306m_merge', 'deepseek_vit_412m_align',
        'deepseek_vit_412m.deepseek_v4_1_flash')]),
    ('Qwen3-ViT', load_array, [
        'encoder.merger.fc1.weight', 'merger.fc1.weight',
        'encoder.aligner.fc1.weight']),
    ('Qwen3-ViT', parse, [
        {'variant': 'qwen3_vit_88m'}, {'name': 'backbone', 'merge': 2},
        {'merge': 2, 'merge_mlp_dim': 4, 'merge_dim': 4},
        {'pool_norm_affine': False}, {'mlp_bias': False}]),
    ("MLCD's", load_config, [{'model_type': 'mlcd_vision_model'}]),
    ("MLCD's", load_array, ['vision_model.class_pos_emb', 'class_pos_emb']),
    ("MLCD's", parse, [{'rotary': {'cls': True}, 'position': 'none'}]),
    ("Scenic's", load_array, ['encoder/ToTokenSequence_0/embedding/kernel']),
    ("evaluation at each image's own grid", parse_op, [
        {'op': 'resize_to_patches', 'patch': 8}])])
def test_a_removed_model_or_setting_is_refused(
    words, read, examples, tmp_path):
  for example in examples:
    with pytest.raises(ValueError, match=(
        f'does not support {words}.* last commit that does is {removed.LAST}')):
      read(example, tmp_path)


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
