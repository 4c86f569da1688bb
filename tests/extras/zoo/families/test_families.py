"""Names of families are unique, and other names belong to none."""

import pathlib

import pytest

from vit_jax.extras.zoo.arrays import matching
from vit_jax.extras.zoo.families import families


def test_other_names_belong_to_no_family():
  assert not matching.candidates(
      ['layer1.0.conv1.weight', 'fc.weight', 'head.bias', 'norm.weight'])


def test_every_file_of_a_family_is_registered():
  names = {path.stem for path in pathlib.Path(families.__file__).parent.glob(
      '*.py')} - {'__init__', 'families', 'names', 'records'}
  assert names == set(families.MODULES)


@pytest.mark.parametrize('family', families.FAMILIES.values(),
                         ids=lambda family: family.name)
def test_no_two_rows_write_the_same_name(family):
  written = [row.theirs for row in family.table.rows]
  assert len(set(written)) == len(written)
