"""NaFlex ViTs of timm, for images of any grid (arXiv 2307.06304, NaViT).

Their class NaFlexVit projects flattened patches and has a grid of positions, of
which class token and registers have none.
"""

import dataclasses
import re

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.extras.zoo.families import timm

_NAMES = dataclasses.replace(
    timm.TIMM, name='naflex', rows=(
        *names.rows("""
        patches            .proj         flat
        cls                .cls_token    tokens
        registers          .reg_token    tokens
        positions          .pos_embed    grid
        positions_rows     .pos_embed_y  tokens
        positions_columns  .pos_embed_x  tokens
        """, model='embeds'),
        *(row for row in timm.TIMM.rows if re.fullmatch(
            r'blocks\.\{layer\}\.(norm\d|attn\.(qkv|proj|norm|[qk]_norm)|ls\d'
            r'|mlp\.(fc\d|norm))\..*|(norm(_pre)?|fc_norm|attn_pool|head)\..*',
            row.theirs))))

_REGISTERS = {**records.SCALED, **records.POOL_NORM, 'registers': 4}
_SO150M2 = {'so150m2': records.Size(832, 21, 2176, 13)}

LINEAGE = records.Lineage(
    arrays=(records.Family(
        'naflex', 'timm NaFlex ViT', _NAMES, settings=records.EXACT,
        positions='cubic'),),
    backbones=(
        *(records.Backbones(
            f'naflexvit_{{}}_patch16_{kind}', {'base': records.B}, (384,),
            _REGISTERS) for kind in ('gap', 'par_gap', 'parfac_gap')),
        records.Backbones(
            'naflexvit_{}_patch16_map', {'base': records.B}, (384,),
            {**records.SCALED, **records.MAP, 'registers': 1}),
        *(records.Backbones(
            f'naflexvit_{{}}_patch16_reg1_{kind}', _SO150M2, (384,), {
                **records.SCALED, **pool, 'registers': 1, 'qkv_bias': False})
          for kind, pool in (
              ('gap', records.POOL_NORM), ('map', records.MAP)))),
    vit=('naflexvit_SIZE_patch16_((par|parfac|reg1)_)?(gap|map)',),
    implied=(
        ('naflexvit_.*', {'position_cls': False}),
        ('naflexvit_.*_parfac_.*', {'position': 'factorized'})),
    architectures=(
        records.Architecture('naflexvit_base_patch16_siglip', 'naflex'),))
