"""Published sizes are recognised by their dimensions."""

import pytest

from vit_jax.models import factory
from vit_jax.models import variants
from vit_jax.weights import published_sizes


# A model of the zoo, which tests it.
@pytest.mark.parametrize(
    'name', [name for name in variants.PUBLISHED if name != '22B/14'])
def test_a_published_model_has_its_variant(name):
  config = factory.parse({'variant': name})
  assert published_sizes.variant(config) == name


def test_other_dimensions_have_no_variant():
  config = factory.parse({'variant': 'Ti/16', 'depth': 11})
  assert published_sizes.variant(config) == ''
