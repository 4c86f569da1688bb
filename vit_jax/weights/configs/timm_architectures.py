"""Arguments that timm's architecture names imply.

A name is that of a function in timm, whose own arguments are in no file. Only
those that the arrays do not determine are listed here. Sources: the functions
in timm 1.0.31, models/vision_transformer.py and models/eva.py.
"""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any


@dataclasses.dataclass(frozen=True)
class Architecture:
  """Settings of an architecture.

  Attributes:
    num_heads: number of attention heads.
    eva: whether timm builds it with its class Eva.
    epsilon: that of the norms, which no argument in a config.json can set.
    arguments: arguments of timm's class, by name.
  """
  num_heads: int
  eva: bool = False
  epsilon: float = 1e-6
  arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_HEADS: Mapping[str, int] = {
    'tiny': 3, 'wee': 4, 'xsmall': 4, 'little': 5, 'small': 6, 'medium': 8,
    'mediumd': 8, 'betwixt': 10, 'base': 12, 'so150m2': 13, 'so150m': 14,
    'intern300m': 16, 'large': 16, 'huge': 16, 'so400m': 16, 'giant': 16,
    'giantopt': 16, 'gigantic': 16}
_SIZE = f'(?P<size>{"|".join(_HEADS)})'
# The arrays or the rules below show all effects of these words on a block. They
# do not for other words, such as rpn and xp.
_WORDS = (r'(_(\d+|dinov2|tipsv2|miil|36x1|gap|map|siglip|reg\d|clip|quickgelu'
          r'|plus|radio_v\d))*')
_VIT = (
    rf'(vit|deit3?|beit3)_{_SIZE}(_distilled)?_patch\d+{_WORDS}',
    rf'vit_{_SIZE}_r\d*_s\d+(_p8)?(_\d+)?', rf'flexivit_{_SIZE}',
    r'aimv2_(large|huge|1b|3b)_patch14_\d+', r'test_vit2?')
_EVA = (
    rf'eva02_{_SIZE}_patch\d+_(clip_)?\d+',
    r'eva_(giant|large)_patch14_(clip_)?\d+',
    rf'vit_(7b|{_SIZE}(_plus)?)_patch16_(dinov3(_qkvb)?|lingbot)',
    rf'vit_{_SIZE}_patch\d+_rope_(mixed_)?(ape_)?\d+',
    rf'vit_{_SIZE}_patch\d+_rope_reg\d_gap_\d+',
    rf'vit_pe_(core|lang|spatial)_{_SIZE}_patch\d+_\d+')
_ROTARY = {'use_rot_pos_emb': True}
_NO_NORM = {'use_post_transformer_norm': False, 'use_fc_norm': False}
# Every rule that matches a name applies; later ones override earlier ones.
_RULES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ('vit_base_patch16_gap_224', {'num_heads': 16}),
    ('test_vit2?', {'num_heads': 2}),
    (r'vit_.*_plus_(clip_)?\d+', {'num_heads': 14}),
    (r'vit_giant_patch\d+_.*(dinov2|tipsv2|radio_v\d|lingbot)',
     {'num_heads': 24}),
    (r'vit_giant_patch14_.*(dinov2|tipsv2)', {'mlp_layer': 'packed SwiGLU'}),
    ('vit_huge_plus_.*', {'num_heads': 20}),
    ('vit_7b_.*', {'num_heads': 32}),
    # The first SigLIP uses the exact GELU, later ones the approximation.
    (r'vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip_.*'
     r'|vit_large_patch16_siglip_(gap_)?512', {'act_layer': 'gelu_tanh'}),
    ('vit_.*_quickgelu_.*', {'act_layer': 'quick_gelu'}),
    (r'vit_.*_clip_.*|aimv2_.*|beit3_.*', {'epsilon': 1e-5}),
    (r'vit_(?!so150m).*_reg\d.*|vit_.*_radio_.*|deit3_.*|flexivit_.*',
     {'no_embed_class': True}),
    ('vit_.*_radio_.*|vit_intern300m_.*', {'final_norm': False}),
    *((f'aimv2_{size}_.*', {'num_heads': heads, 'mlp_layer': 'SwiGLU'})
      for size, heads in (
          ('large', 8), ('huge', 12), ('1b', 16), ('3b', 24))),
    ('eva.*_clip_.*|.*_lingbot', {'global_pool': 'token'}),
    ('eva02_.*', {**_ROTARY, 'ref_feat_shape': [16, 16], 'swiglu_mlp': True}),
    (r'.*_dinov3(_qkvb)?|.*_lingbot', {
        **_ROTARY, 'rope_type': 'dinov3', 'rope_temperature': 100,
        'rope_rotate_half': True, 'use_abs_pos_emb': False,
        'use_fc_norm': False, 'epsilon': 1e-5}),
    (r'vit_(7b|.*_plus)_patch16_dinov3.*|vit_giant_patch16_lingbot',
     {'swiglu_mlp': True}),
    (r'.*_rope_reg\d_gap_\d+', {
        **_ROTARY, 'ref_feat_shape': [16, 16], 'use_abs_pos_emb': False}),
    (r'.*_rope_(mixed_|ape_)*\d+', {
        **_ROTARY, 'rope_grid_indexing': 'xy', 'rope_temperature': 100,
        'use_abs_pos_emb': False, 'global_pool': 'token'}),
    (r'.*_rope_mixed_.*', {'rope_type': 'mixed', 'rope_temperature': 10}),
    (r'.*_rope_(mixed_)?ape_.*', {
        'use_abs_pos_emb': True, 'no_embed_class': True}),
    ('vit_pe_.*', {
        **_ROTARY, 'rope_grid_indexing': 'xy', 'rope_grid_offset': 1.0,
        'ref_feat_shape': [32, 32], 'epsilon': 1e-5}),
    ('vit_pe_.*_gigantic_.*', {'rope_grid_offset': 0.0}),
    ('vit_pe_core_.*', {'global_pool': 'map', 'attn_pool_num_heads': 8}),
    ('vit_pe_(lang|spatial)_.*', _NO_NORM),
    # The grid of the pre-training.
    ('vit_pe_core_base_.*', {'ref_feat_shape': [14, 14]}),
    ('vit_pe_core_(large|small|tiny)_.*', {'ref_feat_shape': [24, 24]}),
)
# Components that our models lack, by words of a name.
_MISSING = (
    (r'.*_rpn_.*|eva02_enormous_.*', 'norms after the residual branches'),
    (r'.*_xp_.*|vit_d?pwee_.*', "timm's parallel layers"),
    (r'.*_\d\dx2_.*', 'pairs of parallel layers'),
    (r'vit_d(little|wee)_.*', 'differential attention'),
    (r'.*_sapiens2', 'grouped-query attention'),
    (r'.*_mci_.*', 'a convolutional stem'),
    (r'vit_relpos_.*|vit_srelpos_.*|beit(v2)?_.*',
     'relative position biases of rows and columns'))


def find_architecture(name: str) -> Architecture | None:
  """Returns the settings that an architecture implies; None if unknown."""
  matches = [re.fullmatch(pattern, name) for pattern in (*_VIT, *_EVA)]
  found = next(filter(None, matches), None)
  if found is None:
    return None
  eva = found.re.pattern in _EVA
  settings: dict[str, Any] = {
      'num_heads': _HEADS.get(found.groupdict().get('size') or '', 16),
      # The class Eva pools by averaging unless its arguments say otherwise.
      **({'global_pool': 'avg'} if eva else {})}
  for pattern, implied in _RULES:
    if re.fullmatch(pattern, name):
      settings |= implied
  return Architecture(
      num_heads=settings.pop('num_heads'), eva=eva,
      epsilon=settings.pop('epsilon', 1e-6), arguments=settings)


def missing_component(name: str) -> str:
  """Returns the component of an architecture that our models lack, or ''."""
  return next((component for pattern, component in _MISSING
               if re.fullmatch(pattern, name)), '')
