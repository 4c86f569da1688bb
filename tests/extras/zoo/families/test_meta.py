"""State dicts of Meta's DINOv2 and MAE have timm's names, with a few others."""

import dataclasses
import re

import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import save as save_lib
from vit_jax.extras.zoo.configs import timm_arguments
from vit_jax.extras.zoo.families import families

DINOV2 = {'layer_scale': 1e-5, 'num_classes': 0, 'gelu': 'exact'}
REGISTERS = {**DINOV2, 'registers': 2}
GIANT = {**REGISTERS, 'mlp': 'swiglu'}


def metas(name):
  """Returns Meta's name for a name of timm."""
  return name.replace('reg_token', 'register_tokens')


def giants(name):
  return re.sub('fc([12])', lambda m: {'1': 'w12', '2': 'w3'}[m[1]],
                metas(name))


def in_chunks(name):
  return re.sub(r'^blocks\.(\d+)', r'blocks.\1.\1', metas(name))


def under(prefix):
  return lambda name: prefix + metas(name)


PLAIN = {'num_classes': 0, 'gelu': 'exact'}


def load(tmp_path, arrays):
  return foreign.load(
      zoo_models.write(tmp_path / 'x', 'timm', arrays), {'num_heads': 2})


@pytest.mark.parametrize(('settings', 'rename', 'others'), [
    (DINOV2, metas, {'mask_token': (1, 12)}),
    (REGISTERS, metas, {'mask_token': (1, 12)}),
    (REGISTERS, in_chunks, {}), (GIANT, giants, {}),
    (PLAIN, metas, {
        'mask_token': (1, 1, 8), 'decoder_pos_embed': (1, 17, 8),
        'decoder_blocks.0.attn.qkv.bias': (24,)}),
    (PLAIN, under('teacher.backbone.'), {
        'teacher.head.mlp.0.weight': (8, 12),
        'teacher.head.last_layer.weight_v': (8, 4)}),
    (PLAIN, under('module.base_encoder.'), {
        'module.base_encoder.head.0.weight': (8, 12),
        'module.base_encoder.head.1.running_mean': (8,),
        'module.predictor.0.weight': (8, 8)}),
    (PLAIN, under('target_encoder.module.'), {
        'target_encoder.module.fc.fc1.weight': (8, 12), 'prototypes': (4, 8)}),
    ({**PLAIN, 'cls': False, 'pooling': 'average'},
     under('target_encoder.module.'), {
         'predictor.module.predictor_pos_embed': (1, 16, 8),
         'predictor.module.predictor_blocks.0.norm1.bias': (8,)})],
    ids=['DINOv2', 'registers', 'chunks', 'giant', 'MAE with its decoder',
         'DINO, iBOT', 'MoCo v3', 'MSN', 'I-JEPA'])
def test_metas_names_are_read(settings, rename, others, tmp_path):
  family = families.FAMILIES['timm']
  written = random_models.params(random_models.config_of(**settings))
  arrays = save_lib.to_arrays(dataclasses.replace(
      family, table=timm_arguments.without(family.table, '.fc1_')), written)
  loaded = load(tmp_path, zoo_models.with_zeros(
      {rename(name): array for name, array in arrays.items()}, others))
  assert loaded.kind == 'meta'
  random_models.assert_same(loaded.read(), written)
  assert loaded.preprocess.mean == preprocessing.IMAGENET_MEAN


def test_a_file_with_only_timms_names_is_read_with_a_note(tmp_path):
  loaded = load(tmp_path, zoo_models.arrays('timm', **PLAIN))
  assert (loaded.kind, loaded.positions) == ('timm', 'cubic')
  assert any('DINO, iBOT, MAE' in note for note in loaded.notes)
