"""Published sizes are recognised."""

import pytest

from vit_jax import models
from vit_jax.models import variants
from vit_jax.weights import published_sizes


@pytest.mark.parametrize('name', variants.PUBLISHED)
def test_a_published_model_has_its_variant(name):
  config = models.parse({'variant': name})
  assert published_sizes.variant(config) == name
  assert published_sizes.has_dimensions(config, name)


def test_other_dimensions_are_not_a_published_size():
  for changed in ({'mlp_dim': 3073}, {'depth': 11}):
    config = models.parse({'variant': 'B/16', **changed})
    assert published_sizes.variant(config) == ''
