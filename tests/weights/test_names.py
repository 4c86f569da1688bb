"""Families are recognised by their names, and by nothing else."""

import json
import pathlib

import numpy as np
import pytest

from vit_jax.weights import layout
from vit_jax.weights import names

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'


def keys(name):
  with np.load(GOLDEN / f'{name}.npz') as file:
    return json.loads(str(file['keys']))


@pytest.mark.parametrize(('file', 'family'), [
    ('ViT-S_32', 'npz'), ('R+ViT-Ti_16', 'npz'), ('R26+ViT-S_32', 'npz'),
    ('timm-vit_tiny_patch16_224', 'timm'),
    ('timm-vit_small_r26_s32_224', 'timm'),
    ('timm-resnetv2_50x1_bit', 'timm_bit'),
    ('hf-vit-tiny-test', 'huggingface')])
def test_golden_files_are_recognised_whole(file, family):
  found, prefix = names.recognise(list(keys(file)))
  assert (found.name, prefix) == (family, '')
  _, ignored, problems = layout.matches(found.table, list(keys(file)))
  assert not ignored and not problems


@pytest.mark.parametrize('prefix', ['params/', 'opt/target/'])
def test_a_prefix_is_found(prefix):
  found = names.recognise([prefix + key for key in keys('ViT-S_32')]
                          + ['opt/state/step'])
  assert (found[0].name, found[1]) == ('npz', prefix)


def test_names_of_something_else_are_of_no_family():
  assert names.recognise(['layer1.0.conv1.weight', 'fc.weight', 'head.bias',
                          'norm.weight']) is None


@pytest.mark.parametrize('family', names.FAMILIES.values(),
                         ids=lambda family: family.name)
def test_no_two_rows_write_the_same_name(family):
  written = [row.theirs for row in family.table.rows]
  assert len(set(written)) == len(written)


def test_a_pair_of_keys_and_values_is_taken_apart_and_joined():
  pair = np.arange(12).reshape(2, 3, 2)
  params = {'pooling/key_value/kernel': pair, 'cls': np.zeros(2)}
  split = names.split_pairs(params)
  np.testing.assert_array_equal(split['pooling/value/kernel'], pair[1])
  joined = names.join_pairs(split, np.stack)
  assert set(joined) == set(params)
  np.testing.assert_array_equal(joined['pooling/key_value/kernel'], pair)
