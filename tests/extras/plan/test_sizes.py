"""Sizes of datasets without their files."""

import pytest

from vit_jax import data
from vit_jax.data.splits import split_strings
from vit_jax.extras.plan import sizes


def test_sizes_for_planning_come_from_the_table():
  planned = sizes.open_planned('cifar10')
  assert len(split_strings.select_split(planned, 'train[:98%]', name='cifar10')
             ) == 49_000
  with pytest.raises(ValueError, match='opened for planning only'):
    planned.splits['train'][0]
  assert sizes.open_planned('cifar1') is None


def test_a_subset_of_a_known_data_set_needs_no_files():
  config = data.parse({'source': 'jft', 'num_examples': 9_000_000})
  planned = data.open_dataset(config, data_optional=True)
  assert planned.num_examples == 9_000_000
  config = data.parse({'source': 'jft', 'num_examples': 400_000_000})
  with pytest.raises(ValueError, match='400,000,000, but jft train has 303,0'):
    data.open_dataset(config, data_optional=True)
