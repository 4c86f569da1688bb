"""Shapes and parameter counts of the published variants."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest

from vit_jax import schema
from vit_jax import tree
from vit_jax.models import factory
from vit_jax.models import variants
from vit_jax.weights import check

# Parameters with 1,000 classes at 224x224. Ti to H, R+Ti, R26, R50+B/16,
# R50+L/32 and the ResNets that BiT released (R50x1, R50x3, R101x1, R101x3,
# R152x2, R152x4) are the published figures (timm's model cards, and the
# checkpoints of the papers). Nobody published the others with 1,000 classes:
# theirs were computed from table 1 of the ViT and ResNet papers.
PARAMETERS = {
    'Ti/16': 5_717_416, 'S/16': 22_050_664, 'S/32': 22_878_952,
    'b/16': 22_050_664, 'b/32': 22_878_952,
    'B/8': 86_576_872, 'B/16': 86_567_656, 'B/32': 88_224_232,
    'L/16': 304_326_632, 'L/32': 306_535_400, 'H/14': 632_045_800,
    'g/14': 1_012_611_432, 'G/14': 1_844_440_680, '22B/14': 21_756_703_720,
    'R50+B/16': 98_659_112, 'R50+B/32': 110_945_832,
    'R50+L/16': 316_483_624, 'R50+L/32': 328_994_856, 'R+Ti/16': 6_337_704,
    'R26+S/32': 36_431_912, 'R26+B/32': 101_383_976,
    'R50x1': 25_549_352, 'R50x2': 97_988_712, 'R50x3': 217_319_080,
    'R101x1': 44_541_480, 'R101x3': 387_934_888, 'R152x1': 60_185_128,
    'R152x2': 236_335_208, 'R152x4': 936_533_224, 'R200x3': 568_633_000}
PLAIN = [v for v in PARAMETERS if not v.startswith('R')]
QUICK = 'Ti/16', 'S/32', 'B/16', 'L/16', 'H/14', 'R+Ti/16', 'R26+S/32', 'R50x1'


def test_every_size_hybrid_and_stage_of_the_tables_is_published():
  assert list(PARAMETERS) == list(variants.PUBLISHED)
  assert {v.split('/')[0] for v in PLAIN} == set(variants.SIZES)
  assert set(variants.HYBRIDS) | set(variants.RESNETS) == (
      set(PARAMETERS) - set(PLAIN))
  layers = {int(n) for v in variants.PUBLISHED
            for n in re.findall(r'^R(\d+)', v)}
  assert layers == set(variants.STAGES)


# A model of the zoo, which tests it.
@pytest.mark.parametrize('variant', [
    pytest.param(v, marks=[pytest.mark.slow] * (v not in QUICK))
    for v in PARAMETERS if v != '22B/14'])
def test_parameter_count_is_the_published_one(variant):
  config = factory.parse({'variant': variant, 'num_classes': 1000})
  params = check.abstract_params(config, (224, 224))
  assert tree.num_elements(params) == PARAMETERS[variant]


def test_num_classes_of_the_config_overrides_the_data_set():
  model = factory.build(
      factory.parse({'variant': 'Ti/16', 'num_classes': 7}), num_classes=1000)
  outputs, _ = jax.eval_shape(lambda: model.init_with_output(
      jax.random.key(0), jnp.zeros((2, 224, 224, 3))))
  assert outputs['logits'].shape == (2, 7)


def test_backbone_setting_keeps_the_others_of_the_variant():
  config = factory.parse({
      'variant': 'R50x3', 'backbone': {'group_norm_epsilon': 0.5}})
  plain = factory.parse({'variant': 'R50x3'})
  assert config.backbone == dataclasses.replace(
      plain.backbone, group_norm_epsilon=0.5)
  assert (plain.backbone.width, plain.backbone.preactivation) == (192, True)


@pytest.mark.parametrize('source', ['R50x1', 'R50+B/16', 'B/16'])
@pytest.mark.parametrize('target', ['', 'R50x1', 'R26+S/32', 'S/32'])
def test_model_inherits_what_its_own_variant_does_not_set(source, target):
  source = schema.to_plain(factory.parse({
      'variant': source, 'head_bias': 2.0,
      **({} if source == 'R50x1' else {'gelu': 'exact'})}))
  got = factory.parse(factory.inherit({'variant': target}, source))
  want = factory.parse({'variant': target} if target else source)
  assert getattr(got, 'backbone', None) == getattr(want, 'backbone', None)
  assert got.name == want.name
  assert got.head_bias == 0
  if 'resnet' not in (got.name, source['name']):
    assert got.gelu == 'exact'
    assert got.patch == want.patch


@pytest.mark.parametrize('section, words', [
    ({'variant': 'X/16'}, "Unknown model size 'X'"),
    ({'variant': 'R50+B/61'}, "Unknown hybrid 'R50+B/61'. Did you mean 'R50+"),
    ({'variant': 'R51x1'}, "as \"R50x1\", but is 'R51x1'. Layers: 26, 50, 101"),
    ({'variant': 'B/16', 'patch': [16, -1]}, 'patch must be at least 0'),
    ({'variant': 'B/16', 'width': 100, 'num_heads': 3},
     'width 100 does not divide into 3 heads.'),
    ({'width': 8, 'mlp_dim': 8, 'patch': 4},
     'neither a variant nor depth, num_heads. Set model.variant'),
    ({'name': 'resnet'}, 'A ResNet needs its stages'),
    ({'name': 'resnet', 'variant': 'B/16'}, "is a vit, but model.name is 'res"),
    ({'variant': 'B/16', 'cls': False}, "pooling 'cls' needs the class token"),
    ({'name': 'ablation', 'variant': 'B/16', 'axial': True},
     'supports no class token'),
    ({'name': 'ablation', 'variant': 'B/16', 'position': 'none',
      'position_at': 'layers'},
     "position_at cannot be 'layers'"),
    ({'variant': 'B/16', 'width': 6, 'num_heads': 2, 'position': 'sincos'},
     'sincos needs a width divisible by 4, not 6'),
    ({'variant': 'B/16', 'attention': 'cudnn', 'dtype': 'float32'},
     "'cudnn' needs bfloat16"),
    ({'variant': 'R50x1', 'backbone': {'width': 40}}, 'multiple of the 32'),
    ({'variant': 'R50x1', 'backbone': {'depths': [3, 0]}}, 'at least one unit'),
])
def test_incompatible_settings_are_an_error(section, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    factory.parse(section)
