"""Published backbones: dimensions and settings, by the names of timm.

`model.variant` can be any of these names. Sizes are from the papers of the
families, where printed, and otherwise from timm 1.0.31.
"""

from collections.abc import Mapping
import dataclasses
import functools
import re
from typing import Any

from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo import timm_names
from vit_jax.models import variants

Size = variants.Size


@dataclasses.dataclass(frozen=True)
class Backbone:
  """A published model.

  Attributes:
    size: dimensions of the encoder.
    resolution: side of the images of its weights.
    settings: `patch`, and other keys of the section `model` that differ from a
      plain ViT.
  """
  size: Size
  resolution: int
  settings: Mapping[str, Any]


_TI, _S, _B, _L, _H = (variants.SIZES[name] for name in (
    'Ti', 'S', 'B', 'L', 'H'))
_SBL = {'small': _S, 'base': _B, 'large': _L}
_MEDIUM = Size(512, 12, 2048, 8)
_SO400M = Size(1152, 27, 4304, 16)  # arXiv 2305.13035, table 1.
_GIANT = {'giant': Size(1536, 40, 4096, 24)}  # arXiv 2304.07193, table 17.
_GIANTOPT = Size(1536, 40, 6144, 16)  # SigLIP 2: arXiv 2502.14786.

_SCALED = {'layer_scale': 1e-5}
_SWIGLU = {'mlp': 'swiglu'}
_POOL_NORM = {'pooling': 'average', 'pool_norm': True, 'final_norm': False}
_MAP = {'pooling': 'attention'}
# arXiv 2508.10104 (DINOv3), section 3.2 and table 2.
_DINOV3 = {**_SCALED, 'cls': True, 'registers': 4}
_QV_BIAS = {**_DINOV3, 'key_bias': False}
_NO_QKV = {**_DINOV3, 'qkv_bias': False}
_TIPSV2 = {'layer_scale': 1.0, 'registers': 1}
# arXiv 2103.00020 (CLIP), table 20; arXiv 2212.07143 (OpenCLIP).
_CLIP = {'stem_norm': 'tokens'}
# arXiv 2303.11331 (EVA-02), table 3; arXiv 2303.15389 (EVA-CLIP).
_EVA02 = {**_SWIGLU, 'key_bias': False}
_EVA02_POOL = {**_EVA02, **_POOL_NORM, 'cls': True}
_EVA02_INNER = {**_EVA02_POOL, 'inner_norm': 'mlp'}
_EVA02_CLIP = {**_EVA02, 'inner_norm': 'both'}
_ROPE_GAP = {**_SCALED, **_POOL_NORM, 'key_bias': False}
_BEIT = {**_SCALED, **_POOL_NORM, 'position': 'relative_2d', 'cls': True,
         'key_bias': False}
_RELPOS = {'position': 'relative_mlp', 'layer_scale': 1e-6, 'qkv_bias': False}
# arXiv 2411.14402 (AIMv2), table 1.
_AIMV2 = {**_SWIGLU, 'pooling': 'average', 'stem_norm': 'patches',
          'norm': 'rms', 'qkv_bias': False, 'proj_bias': False}
# arXiv 2504.13181 (Perception Encoders), table 1.
_PERCEPTION = {**_CLIP, 'cls': True, 'pool_prefix': True}

_Sizes = Mapping[str, Size]
# Template of the names, sizes, resolutions, and the settings that `timm_names`
# does not imply.
_FAMILIES: tuple[tuple[str, _Sizes, tuple[int, ...], Mapping], ...] = (
    # arXiv 2012.12877 (DeiT); 2106.10270 (AugReg); 2111.06377 (MAE).
    ('deit_{}_patch16_{}', {'tiny': _TI, 'small': _S, 'base': _B}, (224,), {}),
    ('deit_{}_distilled_patch16_{}', {'tiny': _TI, 'small': _S, 'base': _B},
     (224,), {'distill_token': True}),
    ('vit_{}_patch16_{}', {'tiny': _TI, **_SBL}, (224, 384), {}),
    ('vit_{}_patch32_{}', _SBL, (224, 384), {}),
    ('vit_{}_patch14_{}', {'huge': _H}, (224,), {}),
    # arXiv 2203.09795.
    ('vit_{}_patch16_18x2_{}', {
        'small': Size(384, 18, 1536, 6), 'base': Size(768, 18, 3072, 12)},
     (224,), _SCALED),
    # arXiv 2204.07118 (DeiT III).
    ('deit3_{}_patch16_{}', _SBL, (224, 384), _SCALED),
    ('deit3_{}_patch16_{}', {'medium': _MEDIUM}, (224,), _SCALED),
    ('deit3_{}_patch14_{}', {'huge': _H}, (224,), _SCALED),
    # arXiv 2212.08013 (FlexiViT).
    ('flexivit_{}', _SBL, (240,), {}),
    # arXiv 2304.07193 (DINOv2), table 17; registers: 2309.16588.
    ('vit_{}_patch14_dinov2', _SBL, (518,), _SCALED),
    ('vit_{}_patch14_reg4_dinov2', _SBL, (518,), {**_SCALED, 'registers': 4}),
    ('vit_{}_patch14_dinov2', _GIANT, (518,), {**_SCALED, **_SWIGLU}),
    ('vit_{}_patch14_reg4_dinov2', _GIANT, (518,),
     {**_SCALED, **_SWIGLU, 'registers': 4}),
    ('vit_{}_patch16_dinov3', _SBL, (256,), _NO_QKV),
    ('vit_{}_patch16_dinov3_qkvb', {'tiny': _TI, **_SBL}, (256,), _QV_BIAS),
    ('vit_{}_patch16_dinov3', {
        'small_plus': _S, 'huge_plus': Size(1280, 32, 5120, 20),
        '7b': Size(4096, 40, 8192, 32)}, (256,), {**_NO_QKV, **_SWIGLU}),
    ('vit_{}_patch16_dinov3_qkvb', {
        'small_plus': _S, 'huge_plus': Size(1280, 32, 5120, 20)}, (256,),
     {**_QV_BIAS, **_SWIGLU}),
    # arXiv 2604.12012 (TIPSv2).
    ('vit_{}_patch14_reg1_tipsv2', {
        'base': _B, 'large': _L, 'so400m': _SO400M}, (448,), _TIPSV2),
    ('vit_{}_patch14_reg1_tipsv2', _GIANT, (448,), {**_TIPSV2, **_SWIGLU}),
    # arXiv 2412.07679 (C-RADIOv3); 2601.17237 (C-RADIOv4).
    *((f'{kind}_{{}}_patch16_radio_v{version}', rows, (512,), settings)
      for kind in ('vit', 'naflexvit') for version, rows, settings in (
          (3, {'base': _B, 'large': _L}, {**_SCALED, 'registers': 7}),
          (3, {'huge': _H, 'giant': Size(1536, 40, 6144, 24)},
           {'registers': 7}),
          (4, {'so400m': _SO400M, 'huge': _H}, {'registers': 9}))),
    # arXiv 2607.05247 (LingBot-Vision).
    ('vit_{}_patch16_lingbot', _SBL, (512,), _QV_BIAS),
    ('vit_{}_patch16_lingbot', _GIANT, (512,), {**_NO_QKV, **_SWIGLU}),
    *((f'vit_{{}}_patch{patch}_{kind}_{{}}', rows, resolutions, _CLIP)
      for kind in ('clip', 'clip_quickgelu') for patch, rows, resolutions in (
          (32, {'base': _B}, (224,)), (16, {'base': _B}, (224,)),
          (14, {'large': _L}, (224, 336)), (14, {'huge': _H}, (224,)))),
    # arXiv 2303.15343 (SigLIP); 2502.14786 (SigLIP 2).
    ('vit_{}_patch16_siglip_{}', {'base': _B}, (224, 256, 384, 512), _MAP),
    ('vit_{}_patch16_siglip_{}', {'large': _L}, (256, 384, 512), _MAP),
    ('vit_{}_patch14_siglip_{}', {'so400m': _SO400M}, (224, 378), _MAP),
    ('vit_{}_patch16_siglip_{}', {'so400m': _SO400M}, (256, 384, 512), _MAP),
    ('vit_{}_patch16_siglip_{}', {'giantopt': _GIANTOPT}, (256, 384), _MAP),
    ('eva02_{}_patch14_{}', {
        'tiny': Size(192, 12, 512, 3), 'small': Size(384, 12, 1024, 6)},
     (224, 336), _EVA02_POOL),
    ('eva02_{}_patch14_{}', {
        'base': Size(768, 12, 2048, 12), 'large': Size(1024, 24, 2730, 16)},
     (224, 448), _EVA02_INNER),
    ('eva02_{}_patch16_clip_{}', {'base': Size(768, 12, 2048, 12)}, (224,),
     _EVA02_CLIP),
    ('eva02_{}_patch14_clip_{}', {'enormous': Size(1792, 64, 15360, 16)},
     (224,), {'key_bias': False}),
    ('eva02_{}_patch14_clip_{}', {'large': Size(1024, 24, 2730, 16)},
     (224, 336), _EVA02_CLIP),
    # arXiv 2403.13298 (RoPE-ViT).
    *((f'vit_{{}}_patch16_{kind}_{{}}', _SBL, (224,), _SCALED)
      for kind in ('rope', 'rope_ape', 'rope_mixed', 'rope_mixed_ape')),
    # arXiv 2106.08254 (BEiT); 2208.06366 (BEiT v2).
    ('beit_{}_patch16_{}', {'base': _B, 'large': _L}, (224, 384), _BEIT),
    ('beit_{}_patch16_{}', {'large': _L}, (512,), _BEIT),
    ('beitv2_{}_patch16_{}', {'base': _B, 'large': _L}, (224,), _BEIT),
    # timm's own.
    *(('vit_srelpos_{}_patch16_{}', {word: size}, (224,), {
        **_RELPOS, 'position_at': 'shared', 'position_mlp_dim': size.width})
      for word, size in (('small', _S), ('medium', _MEDIUM))),
    ('vit_relpos_{}_patch16_{}', {'small': _S, 'medium': _MEDIUM, 'base': _B},
     (224,), {**_RELPOS, **_POOL_NORM}),
    ('vit_relpos_{}_patch16_clsgap_{}', {'base': _B}, (224,),
     {**_RELPOS, **_POOL_NORM, 'cls': True}),
    ('vit_relpos_{}_patch16_cls_{}', {'medium': _MEDIUM}, (224,),
     {**_RELPOS, 'position_mlp_dim': 256}),
    ('vit_relpos_{}_patch16_rpn_{}', {'medium': _MEDIUM}, (224,),
     {**_RELPOS, 'layer_scale': None}),
    ('vit_relpos_{}_patch32_plus_rpn_{}', {'base': Size(896, 12, 3584, 14)},
     (256,), {'position': 'relative_mlp'}),
    ('vit_{}_patch16_rpn_{}', {'base': _B}, (224,),
     {'pooling': 'average', 'qkv_bias': False}),
    ('vit_{}_patch16_rope_reg1_gap_{}', {'medium': _MEDIUM, 'base': _B},
     (256,), {**_ROPE_GAP, 'registers': 1}),
    ('vit_{}_patch16_reg4_gap_{}', {'medium': _MEDIUM}, (256,),
     {**_SCALED, **_POOL_NORM, 'registers': 4}),
    ('vit_{}_patch16_reg1_gap_{}', {
        'dwee': Size(256, 14, 1280, 4), 'dpwee': Size(256, 16, 1280, 4),
        'dlittle': Size(320, 14, 1792, 5)}, (256,),
     {**_SCALED, **_POOL_NORM, 'registers': 1}),
    ('vit_{}_patch16_reg4_map_{}', {'so150m': Size(896, 18, 2304, 14)},
     (256,), {**_MAP, 'registers': 4}),
    # NaFlex: arXiv 2307.06304 (NaViT); 2502.14786 (SigLIP 2).
    *((f'naflexvit_{{}}_patch16_{kind}', {'base': _B}, (384,),
       {**_SCALED, **_POOL_NORM, 'registers': 4})
      for kind in ('gap', 'par_gap', 'parfac_gap')),
    ('naflexvit_{}_patch16_map', {'base': _B}, (384,),
     {**_SCALED, **_MAP, 'registers': 1}),
    *((f'naflexvit_{{}}_patch16_reg1_{kind}', {
        'so150m2': Size(832, 21, 2176, 13)}, (384,),
       {**_SCALED, **pool, 'registers': 1, 'qkv_bias': False})
      for kind, pool in (('gap', _POOL_NORM), ('map', _MAP))),
    ('naflexvit_{}_patch16_siglip', {'base': _B, 'so400m': _SO400M}, (384,),
     _MAP),
    ('vit_pe_core_{}_patch16_{}', {'tiny': _TI, 'small': _S}, (384,),
     _PERCEPTION),
    ('vit_pe_core_{}_patch16_{}', {'base': _B}, (224,), _PERCEPTION),
    ('vit_pe_core_{}_patch14_{}', {'large': _L}, (336,), _PERCEPTION),
    ('vit_pe_core_{}_patch14_{}', {'gigantic': Size(1536, 50, 8960, 16)},
     (448,), {**_PERCEPTION, 'cls': False, 'pool_mlp_dim': 6144}),
    ('aimv2_{}_patch14_{}', {
        'large': Size(1024, 24, 2816, 8), 'huge': Size(1536, 24, 4096, 12),
        '1b': Size(2048, 24, 5632, 16), '3b': Size(3072, 24, 8192, 24)},
     (224, 336, 448), _AIMV2),
)


@functools.cache
def table() -> Mapping[str, Backbone]:
  """Returns all backbones by name."""
  found = {}
  for template, family_sizes, resolutions, settings in _FAMILIES:
    patch = re.search(r'patch(\d+)', template)
    for word, size in family_sizes.items():
      for resolution in resolutions:
        name = template.format(word, resolution)
        found[name] = Backbone(
            size, resolution, {'patch': int(patch[1]) if patch else 16,
                               **_implied(name), **settings})
  return found


def _implied(name: str) -> dict[str, Any]:
  """Returns the GELU that a name implies, and settings unlike a plain ViT's.

  The GELU is always set: a model that starts from a checkpoint inherits the
  settings that its own section leaves out.
  """
  implied = timm_names.find_architecture(name)
  assert implied is not None, name
  defaults = {field.name: field.default
              for field in dataclasses.fields(vit_config.BackboneConfig)}
  return {key: value for key, value in implied.items()
          if key != 'num_heads' and (
              key == 'gelu' or value != defaults[key])}
