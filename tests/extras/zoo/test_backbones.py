"""Published backbones by name: settings, sizes and numbers of parameters."""

import pytest

import vit_jax
from vit_jax import schema
from vit_jax import tree
from vit_jax.extras.zoo import backbones
from vit_jax.extras.zoo.configs import timm
from vit_jax.models import factory
from vit_jax.weights import check


def test_settings_are_those_that_the_name_implies_in_timm():
  for name in backbones.table():
    config = schema.to_plain(factory.parse({'variant': name}))
    implied = timm.parse({'architecture': name})
    for key, value in implied.model.items():
      again = factory.parse({**config, key: value})
      assert schema.to_plain(again)[key] == config[key], (name, key)
    if config['position'] == 'learned' and (
        config['cls'] or config['pooling'] == 'cls'):
      assert config['position_cls'] == implied.embeds_prefix, name


# Parameters in timm 1.0.31, with 1,000 classes.
PARAMETERS = [
    ('deit3_small_patch16_224', 22_059_496),
    ('vit_giant_patch14_dinov2', 1_138_016_232),
    ('vit_small_patch14_reg4_dinov2', 22_442_344),
    ('vit_so400m_patch14_reg1_tipsv2', 414_544_600),
    ('vit_large_patch16_radio_v3', 305_227_752),
    ('vit_large_patch16_lingbot', 304_153_576),
    ('vit_small_plus_patch16_dinov3', 29_068_264),
    ('vit_7b_patch16_dinov3', 6_720_127_976),
    ('vit_large_patch14_clip_336', 304_532_456),
    ('vit_so400m_patch14_siglip_378', 429_378_600),
    ('eva02_large_patch14_448', 305_080_232),
    ('eva02_base_patch16_clip_224', 86_638_312),
    ('vit_base_patch16_rope_mixed_ape_224', 86_594_536),
    ('vit_medium_patch16_rope_reg1_gap_256', 38_743_016),
    ('vit_pe_core_gigantic_patch14_448', 1_881_603_560),
    ('aimv2_3b_patch14_224', 2_723_731_432),
    ('beit_base_patch16_224', 86_530_984),
    ('vit_relpos_base_patch16_clsgap_224', 86_430_328),
    ('vit_srelpos_medium_patch16_224', 38_735_856),
    ('vit_relpos_base_patch32_plus_rpn_256', 119_423_760),
    ('eva02_enormous_patch14_clip_224', 4_350_513_896),
    ('vit_base_patch16_18x2_224', 256_731_880),
    ('vit_dwee_patch16_reg1_gap_256', 13_425_256)]


@pytest.mark.parametrize(('name', 'expected'), [
    pytest.param(*case, marks=[pytest.mark.slow] * (i % 3 > 0))
    for i, case in enumerate(PARAMETERS)])
def test_number_of_parameters_is_that_of_timm(name, expected):
  config = factory.parse({'variant': name, 'num_classes': 1000})
  side = backbones.table()[name].resolution
  assert tree.num_elements(
      check.abstract_params(config, (side, side))) == expected


def test_models_are_listed_by_pattern():
  names = vit_jax.list_models('*dinov3*')
  assert 'vit_small_patch16_dinov3' in names
  assert all('dinov3' in name for name in names)
  assert vit_jax.list_models('b/16') == ['b/16', 'B/16']
