"""What the trunk's tests check of a ViT holds for backbones, too."""

import pytest

from tests import random_models
from tests.models import test_attention
from tests.models import test_encoder
from tests.models import test_positions
from tests.models import test_variants
from tests.models.test_attention import calls  # noqa: F401
from tests.objectives import test_config as test_objectives
from tests.objectives import test_mae
from tests.objectives import test_masked_patch
from tests.parallel import test_golden_shardings
from tests.weights import test_adapt
from tests.weights import test_published

B16 = {'variant': 'B/16'}
RELATIVE = {'position': 'relative_2d', 'position_at': 'shared'}


@pytest.mark.parametrize('section', [
    {'position': 'relative_2d'}, {'differential': True}], ids=str)
def test_they_take_the_plain_path_of_attention(calls, section):  # noqa: F811
  test_attention.trace(section)
  assert not calls


def test_folded_layer_scales_change_neither_outputs_nor_gradients():
  scaled = test_encoder.build(layer_scale=0.5, remat='attention')
  params = random_models.randomize(
      scaled, test_encoder.IMAGES, scale=0.4, seed=2)
  expected, found = (
      test_encoder.loss_and_gradients(scaled, params, train=train)
      for train in (False, True))
  random_models.assert_close(found, expected, atol=1e-5)


@pytest.mark.parametrize('kind', [
    {'parallel': True}, {'num_kv_heads': 1},
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in (
        {'qk_norm': True}, {'layer_scale': 0.1}, {'rotary': {}},
        {'differential': True}))], ids=str)
def test_attention_remat_saves_projections_in_the_compute_dtype(kind):
  test_encoder.check_saved_by_attention_remat(**kind)


def test_without_positions_the_order_of_patches_does_not_matter():
  test_positions.test_without_positions_the_order_of_patches_does_not_matter(
      {'position': 'none', 'registers': 2})


def test_22b_has_its_published_size():
  test_variants.test_parameter_count_is_the_published_one('22B/14')
  test_published.test_a_published_model_has_its_variant('22B/14')


def test_shardings_of_22b_are_unchanged():
  test_golden_shardings.test_shardings_are_unchanged('22B/14')


@pytest.mark.parametrize(('section', 'words'), [
    ({'num_kv_heads': 5}, 'num_kv_heads must divide'),
    ({'position': 'relative_2d', 'position_at': 'layers'},
     "position_at is 'layers'. Expected one of 'stem', 'shared'"),
    ({'position': 'relative_mlp', 'axial': True, 'pooling': 'average'},
     'Unknown key model.axial'),
    ({'post_norm': True, 'layer_scale': 0.1}, 'post_norm excludes'),
    ({'paired': True, 'parallel': True}, 'paired excludes')])
def test_incompatible_settings_are_an_error(section, words):
  test_variants.test_incompatible_settings_are_an_error(
      {**B16, **section}, words)


@pytest.mark.parametrize('settings', [
    {'position': 'relative_2d'}, {**RELATIVE, 'pooling': 'average'},
    {'position': 'relative_mlp'}], ids=str)
def test_positions_of_every_kind_fit_a_model_of_another_grid(settings):
  test_adapt.test_positions_of_every_kind_fit_a_model_of_another_grid(settings)


@pytest.mark.parametrize(('objective', 'section'), [
    ('mae', {'rotary': {}}), ('mae', {'position': 'relative_2d'})])
def test_a_model_that_does_not_suit_the_objective_is_an_error(
    objective, section):
  words = {'rotary': 'model.rotary=RotaryConfig'}
  name, value = next(iter(section.items()))
  test_objectives.test_a_model_that_does_not_suit_the_objective_is_an_error(
      {'name': objective}, {**test_objectives.VIT, **section},
      words.get(name, f'model.{name}={value!r}'))


@pytest.mark.slow
@pytest.mark.parametrize('target', ['normalized', 'patch'])
def test_the_loss_of_mae_is_over_masked_patches(target):
  test_mae.test_loss_equals_a_loop_over_masked_patches(target, {'registers': 2})


def test_visible_tokens_keep_their_positions():
  test_mae.test_visible_tokens_keep_their_positions({'registers': 1}, prefix=1)


@pytest.mark.slow
def test_the_loss_of_masked_patches_is_over_corrupted_ones():
  test_masked_patch.test_loss_equals_a_loop_over_corrupted_patches(
      'downsampled', {'registers': 2})


@pytest.mark.parametrize('section', [
    {'distill_token': True}, {'stem_norm': 'tokens'},
    *(pytest.param(section, marks=pytest.mark.slow) for section in (
        {'position': 'factorized', 'representation_layer': True, 'patch': 1,
         'backbone': {'depths': (1,), 'width': 32}}, {'stem_norm': 'patches'},
        RELATIVE, {**RELATIVE, 'position': 'relative_mlp'}, {
            'position': 'relative_2d', 'layer_scale': 0.1, 'pool_norm': True,
            'pooling': 'average', 'final_norm': False}))], ids=str)
def test_each_layer_of_a_model_has_its_own_learning_rate(section):
  pytest.importorskip(
      'tests.extras.optimizers.test_layer_decay',
  ).test_each_layer_of_a_model_has_its_own_learning_rate(section)
