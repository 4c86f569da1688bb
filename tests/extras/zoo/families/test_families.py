"""Names of families are unique, and other names belong to none."""

import pytest

from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import matching


def test_other_names_belong_to_no_family():
  assert not matching.candidates(
      ['layer1.0.conv1.weight', 'fc.weight', 'head.bias', 'norm.weight'])


@pytest.mark.parametrize('family', families.FAMILIES.values(),
                         ids=lambda family: family.name)
def test_no_two_rows_write_the_same_name(family):
  written = [row.theirs for row in family.table.rows]
  assert len(set(written)) == len(written)
