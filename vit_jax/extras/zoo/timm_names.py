"""Settings that timm's architecture names imply.

A name is that of a function in timm, whose own arguments are in no file. Only
settings that the arrays do not determine are listed here. Sources: the
functions in timm 1.0.31, models/vision_transformer.py and models/eva.py.
"""

from collections.abc import Mapping
import re
from typing import Any

_HEADS: Mapping[str, int] = {
    'tiny': 3, 'wee': 4, 'pwee': 4, 'dwee': 4, 'dpwee': 4, 'xsmall': 4,
    'little': 5, 'dlittle': 5, 'small': 6, 'medium': 8, 'mediumd': 8,
    'betwixt': 10, 'base': 12, 'so150m2': 13, 'so150m': 14, 'intern300m': 16,
    'large': 16, 'huge': 16, 'so400m': 16, 'giant': 16, 'giantopt': 16,
    'gigantic': 16, 'enormous': 16}
_SIZE = f'(?P<size>{"|".join(_HEADS)})'
# Words whose effects on a block follow from the arrays or the rules below.
_WORDS = (r'(_(\d+|dinov2|tipsv2|miil|36x1|18x2|gap|map|siglip|reg\d|clip'
          r'|quickgelu|plus|rpn|xp|radio_v\d))*')
_VIT = (
    rf'(vit|deit3?|beit3)_{_SIZE}(_distilled)?_patch\d+{_WORDS}',
    rf'vit_{_SIZE}_r\d*_s\d+(_p8)?(_\d+)?', rf'flexivit_{_SIZE}',
    r'aimv2_(large|huge|1b|3b)_patch14_\d+', r'test_vit[2-4]?',
    rf'beit(v2)?_{_SIZE}_patch\d+_\d+', 'test_vit_relpos',
    rf'naflexvit_{_SIZE}_patch16_((par|parfac|reg1)_)?(gap|map|siglip|radio_v\d)',
    rf'vit_s?relpos_{_SIZE}_patch\d+(_plus)?(_cls|_clsgap|_rpn)?_\d+')
_EVA = (
    rf'eva02_{_SIZE}_patch\d+_(clip_)?\d+',
    r'eva_(giant|large)_patch14_(clip_)?\d+',
    rf'vit_(5b|7b|{_SIZE}(_plus)?)_patch16_'
    r'(dinov3(_qkvb)?|lingbot|sapiens2)',
    rf'vit_{_SIZE}_patch\d+_rope_(mixed_)?(ape_)?\d+',
    rf'vit_{_SIZE}_patch\d+_rope_reg\d_gap_\d+',
    rf'vit_pe_(core|lang|spatial)_{_SIZE}_patch\d+_\d+')
_DINOV3 = {'coordinates': 'normalized', 'base': 100.0, 'halves': True}
# Every rule that matches a name applies; later ones override earlier ones.
_RULES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ('vit_base_patch16_gap_224', {'num_heads': 16}),
    ('test_vit2?', {'num_heads': 2}),
    ('test_vit_relpos|test_vit[34]', {'num_heads': 3}),
    ('test_vit3', {'pool_prefix': True}),
    ('beit(v2)?_.*|.*relpos.*', {'pooling': 'average'}),
    ('vit_relpos_.*_cls_.*', {'pooling': 'cls'}),
    ('.*_rpn_.*', {'post_norm': True}),
    (r'vit_.*_plus_((clip|rpn)_)?\d+', {'num_heads': 14}),
    (r'(naflex)?vit_giant_patch\d+_.*(dinov2|tipsv2|radio_v\d|lingbot)',
     {'num_heads': 24}),
    ('vit_huge_plus_.*', {'num_heads': 20}),
    ('vit_7b_.*|vit_5b_.*', {'num_heads': 32}),
    ('vit_giant_.*_sapiens2', {'num_heads': 24}),
    ('.*_xp_.*|vit_d?pwee_.*', {'parallel': True, 'position_cls': False}),
    (r'vit_d(little|p?wee)_.*', {'differential': True}),
    ('.*_18x2_.*', {'paired': True}),
    # The first SigLIP uses the exact GELU, later ones the approximation.
    (r'naflexvit_.*_siglip'
     r'|vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip_.*'
     r'|vit_large_patch16_siglip_(gap_)?512', {'gelu': 'tanh'}),
    ('vit_.*_quickgelu_.*', {'gelu': 'quick'}),
    (r'vit_.*_clip_.*|aimv2_.*|beit3_.*', {'layer_norm_epsilon': 1e-5}),
    (r'vit_(?!so150m).*_reg\d.*|vit_.*_radio_.*|(deit3|flexivit|naflexvit)_.*',
     {'position_cls': False}),
    ('naflexvit_.*_parfac_.*', {'position': 'factorized'}),
    ('(naflex)?vit_.*_radio_.*|vit_intern300m_.*|vit_pe_(lang|spatial)_.*',
     {'final_norm': False}),
    *((f'aimv2_{size}_.*', {'num_heads': heads}) for size, heads in (
        ('large', 8), ('huge', 12), ('1b', 16), ('3b', 24))),
    ('eva.*_clip_.*|.*_lingbot', {'pooling': 'cls'}),
    (r'eva02_.*|.*_rope_reg\d_gap_\d+', {'rotary': {'reference': 16}}),
    ('eva02_enormous_.*', {'post_norm': True, 'rotary': None}),
    (r'.*_dinov3(_qkvb)?|.*_lingbot', {
        'rotary': _DINOV3, 'layer_norm_epsilon': 1e-5}),
    ('.*_sapiens2', {
        'rotary': _DINOV3, 'position': 'none', 'pooling': 'cls',
        'layer_scale_mlp': False}),
    (r'.*_rope_(mixed_|ape_)*\d+', {
        'rotary': {'base': 100.0, 'x_first': True}, 'pooling': 'cls'}),
    (r'.*_rope_mixed_.*', {'rotary': {
        'base': 10.0, 'x_first': True, 'learned': True}}),
    (r'.*_(dinov3(_qkvb)?|lingbot|rope_(mixed_)?\d+|rope_reg\d_gap_\d+)',
     {'position': 'none'}),
    (r'.*_rope_(mixed_)?ape_.*', {'position_cls': False}),
    *((f'vit_pe_{pattern}_.*', {
        'rotary': {'reference': side, 'offset': 1.0, 'x_first': True},
        'layer_norm_epsilon': 1e-5}) for pattern, side in (
            ('.*', 32),
            # The grid of the pre-training.
            ('core_base', 14), ('core_(large|small|tiny)', 24))),
    ('vit_pe_.*_gigantic_.*', {'rotary': {'reference': 32, 'x_first': True}}),
    ('vit_pe_core_.*', {'pooling': 'attention', 'pool_heads': 8}),
    ('vit_pe_lang_large_.*', {'depth': 23}),
)
# Components that our models lack, by words of a name.
_MISSING = (
    (r'.*_mci_.*', 'a convolutional stem'),
    (r'vit_.*_resnet\d+d_.*', 'a ResNet-D with batch norm'),
    ('gemma4_.*', 'norms before and after each branch, and clipped inputs'),
    ('hiera.*', 'pooling between layers (Hiera)'),
    ('sam(vit|2|_.*)?(_.*)?', 'attention within windows (SAM)'),
    ('swin.*', 'attention within shifted windows (Swin)'),
    ('(dinov3_)?convnext.*', 'a convolutional network (ConvNeXt)'))


def find_architecture(name: str) -> dict[str, Any] | None:
  """Returns the keys of section `model` that an architecture implies.

  Models that timm builds with its class Eva have `rotary`, which may be None.
  The result is None if the architecture is unknown.
  """
  matches = [re.fullmatch(pattern, name) for pattern in (*_VIT, *_EVA)]
  found = next(filter(None, matches), None)
  if found is None:
    return None
  settings: dict[str, Any] = {
      'num_heads': _HEADS.get(found.groupdict().get('size') or '', 16),
      'gelu': 'exact', 'layer_norm_epsilon': 1e-6, 'position_cls': True,
      'post_norm': False}
  if found.re.pattern in _EVA:
    settings |= {'rotary': None, 'pooling': 'average'}
  for pattern, implied in _RULES:
    if re.fullmatch(pattern, name):
      settings |= implied
  return settings


def missing_component(name: str) -> str:
  """Returns the component of an architecture that our models lack, or ''."""
  return next((component for pattern, component in _MISSING
               if re.fullmatch(pattern, name)), '')
