"""Wrong sections of objectives, and models that do not suit them."""

import re

import pytest

from vit_jax import objectives
from vit_jax.models import factory

VIT = {'width': 16, 'depth': 2, 'num_heads': 2, 'mlp_dim': 32, 'patch': 4}


@pytest.mark.parametrize(('section', 'words'), [
    ({'label_smoothing': 1.0}, 'label_smoothing must be at least 0 and'),
    ({'name': 'distill'}, 'needs the weights of a teacher'),
    ({'name': 'distill', 'teacher': 'x', 'weight': 0.0},
     'weight must be above 0'),
    ({'name': 'distill', 'teacher': 'x', 'loss': 'sigmoid'},
     "but loss is 'sigmoid'"),
    ({'name': 'mae', 'masked': 0.0}, 'objective: masked must be'),
    ({'name': 'mae', 'decoder_width': 18}, 'divide into 16 heads'),
    ({'name': 'masked_patch', 'corrupted': 1.5}, 'but is 1.5'),
    ({'name': 'masked_patch', 'shares': (0.8, 0.1, 0.2)}, 'three fractions'),
    ({'name': 'lejepa', 'weight': 1.0}, 'weight must be above 0 and below 1'),
    *((({'name': 'lejepa', 'views': views}), words) for views, words in (
        ({'num_global': 1, 'num_local': 0}, 'num_global must be at least 2'),
        ({'local_area': (0.5, 0.1)}, 'low <= high, but is 0.5, 0.1'),
        ({'global_area': (0.5, 2.0)}, 'global_area must be above 0 and at'))),
])
def test_a_wrong_section_is_an_error(section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    objectives.parse(section)


def test_changes_of_colour_need_three_channels():
  with pytest.raises(ValueError, match='have 4 channels.*grayscale=0'):
    objectives.parse({'name': 'lejepa'}).build_model(
        factory.parse(VIT), image_shape=(8, 12, 4), num_classes=5)


MASKED_PATCH = {'name': 'masked_patch', 'corrupted': 0.3}


@pytest.mark.parametrize(('objective', 'model', 'words'), [
    ({'name': 'mae'}, {'variant': 'R50x1'}, 'but the model is a resnet'),
    ({'name': 'mae'}, {**VIT, 'position': 'relative'},
     "model.position='relative'"),
    ({'name': 'mae'}, {**VIT, 'position_at': 'layers'},
     "model.position_at='layers'"),
    ({'name': 'mae'}, {**VIT, 'axial': True, 'pooling': 'average'},
     'model.axial=True'),
    ({'name': 'mae'}, {**VIT, 'patch': (8, 12)},
     'of 1 patches leaves 0 visible'),
    (MASKED_PATCH, {'variant': 'R50x1'}, 'but the model is a resnet'),
    (MASKED_PATCH, {'variant': 'R50+B/16'}, 'but the model is a hybrid'),
    (MASKED_PATCH, {**VIT, 'patch': (8, 12)},
     'rounds to 0. Use a larger fraction'),
    ({'name': 'lejepa'}, {'variant': 'R50x1'},
     "unlike those of model.name='resnet'"),
    ({'name': 'lejepa'}, {**VIT, 'position': 'relative'},
     "model.position='relative'"),
    ({'name': 'lejepa'}, {**VIT, 'position_at': 'layers'},
     "model.position_at='layers'"),
    ({'name': 'lejepa', 'views': {'local_size': 6}}, VIT, 'views.local_size'),
])
def test_a_model_that_does_not_suit_the_objective_is_an_error(
    objective, model, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    objectives.parse(objective).build_model(
        factory.parse(model), image_shape=(8, 12, 3), num_classes=5)
