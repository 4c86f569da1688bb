"""Wrong sections of objectives, and models that do not suit them."""

import re

import pytest

from vit_jax import objectives
from vit_jax.models import factory

VIT = {'width': 16, 'depth': 2, 'num_heads': 2, 'mlp_dim': 32, 'patch': 4}


@pytest.mark.parametrize(('section', 'words'), [
    ({'label_smoothing': 1.0}, 'label_smoothing must be at least 0 and'),
    ({'name': 'mae', 'masked': 0.0}, 'objective: masked must be'),
    ({'name': 'mae', 'decoder_width': 18}, 'divide into 16 heads'),
    ({'name': 'masked_patch', 'corrupted': 1.5}, 'but is 1.5'),
    ({'name': 'masked_patch', 'shares': (0.8, 0.1, 0.2)}, 'three fractions'),
])
def test_a_wrong_section_is_an_error(section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    objectives.parse(section)


MASKED_PATCH = {'name': 'masked_patch', 'corrupted': 0.3}


@pytest.mark.parametrize(('objective', 'model', 'words'), [
    ({'name': 'mae'}, {'variant': 'R50x1'}, 'but the model is a resnet'),
    ({'name': 'mae'}, {**VIT, 'name': 'ablation', 'position': 'relative'},
     "model.position='relative'"),
    ({'name': 'mae'},
     {**VIT, 'name': 'ablation', 'axial': True, 'pooling': 'average'},
     'model.axial=True'),
    ({'name': 'mae'}, {**VIT, 'patch': (8, 12)},
     'of 1 patches leaves 0 visible'),
    (MASKED_PATCH, {'variant': 'R50+B/16'}, 'but the model is a hybrid'),
    (MASKED_PATCH, {**VIT, 'patch': (8, 12)},
     'rounds to 0. Use a larger fraction'),
])
def test_a_model_that_does_not_suit_the_objective_is_an_error(
    objective, model, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    objectives.parse(objective).build_model(
        factory.parse(model), image_shape=(8, 12, 3), num_classes=5)
