"""Families are recognised by the names in a file."""

import json
import pathlib

import numpy as np
import pytest

from vit_jax.weights import families
from vit_jax.weights import layout
from vit_jax.weights import matching

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
def test_golden_files_are_recognised(file, family):
  found, prefix = matching.candidates(list(keys(file)))[0]
  assert (found.name, prefix) == (family, '')
  assert not layout.matches(found.table, list(keys(file)))[1]


def test_other_names_belong_to_no_family():
  assert not matching.candidates(
      ['layer1.0.conv1.weight', 'fc.weight', 'head.bias', 'norm.weight'])


@pytest.mark.parametrize('family', families.FAMILIES.values(),
                         ids=lambda family: family.name)
def test_no_two_rows_write_the_same_name(family):
  written = [row.theirs for row in family.table.rows]
  assert len(set(written)) == len(written)
