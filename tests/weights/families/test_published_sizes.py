"""Published sizes are recognised, and a truncated one is an error."""

import pytest

from vit_jax import models
from vit_jax.models import variants
from vit_jax.weights.families import published_sizes


@pytest.mark.parametrize('name', variants.PUBLISHED)
def test_a_published_model_has_its_variant(name):
  config = models.parse({'variant': name})
  assert published_sizes.variant(config, declared={}) == name
  assert published_sizes.has_dimensions(config, name)


@pytest.mark.parametrize(('section', 'words', 'declared'), [
    ({'variant': 'Ti/16', 'depth': 11}, 'Ti/16, but only 11 of 12 layers.*'
     'depth=11', {'depth': 11}),
    ({'variant': 'R26+S/32', 'backbone': {'depths': (2, 2, 2, 1)}},
     r"R26\+S/32, but only 12 \+ 2 \+ 2 \+ 2 \+ 1 of .*depths': \(2, 2, 2, 1\)",
     {'backbone': {'depths': (2, 2, 2, 1)}}),
    ({'variant': 'R50x1', 'backbone': {'depths': (3, 4, 5, 3)}},
     r'R50x1, but only 3 \+ 4 \+ 5 \+ 3 of 3 \+ 4 \+ 6 \+ 3 layers',
     {'backbone': {'depths': (3, 4, 5, 3)}})])
def test_a_published_model_without_its_last_layers_must_be_declared(
    section, words, declared):
  config = models.parse(section)
  with pytest.raises(ValueError, match=words):
    published_sizes.variant(config, declared={})
  assert published_sizes.variant(config, declared=declared) == ''


def test_other_widths_are_not_a_published_size():
  config = models.parse({'variant': 'B/16', 'mlp_dim': 3073})
  assert published_sizes.variant(config, declared={}) == ''
