"""SigLIP: arXiv 2303.15343; SigLIP 2: 2502.14786."""

from collections.abc import Mapping
import dataclasses

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records

# `joint` converts queries, keys and values.
_SIGLIP = names.tower('siglip', """
    pooling/probe       .head.probe               tokens
    pooling/query_key_value/kernel  .head.attention.in_proj_weight  pools_kernel
    pooling/query_key_value/bias    .head.attention.in_proj_bias    pools_bias
    pooling/out         .head.attention.out_proj  pool_out
    pooling/mlp_norm    .head.layernorm           norm
    pooling/mlp/hidden  .head.mlp.fc1             dense
    pooling/mlp/out     .head.mlp.fc2             dense
    """)

# Patches of images of any aspect ratio are flat (NaFlex).
_SIGLIP2 = dataclasses.replace(_SIGLIP, name='siglip2', rows=(
    *names.rows(
        'patches .embeddings.patch_embedding flat', model='vision_model'),
    *(row for row in _SIGLIP.rows if not row.ours.startswith('patches/'))))

_GIANTOPT = records.Size(1536, 40, 6144, 16)  # arXiv 2502.14786.
# Template, sizes and resolutions.
_BACKBONES: tuple[tuple[str, Mapping, tuple[int, ...]], ...] = (
    ('vit_{}_patch16_siglip_{}', {'base': records.B}, (224, 256, 384, 512)),
    ('vit_{}_patch16_siglip_{}', {'large': records.L}, (256, 384, 512)),
    ('vit_{}_patch14_siglip_{}', {'so400m': records.SO400M}, (224, 378)),
    ('vit_{}_patch16_siglip_{}', {'so400m': records.SO400M}, (256, 384, 512)),
    ('vit_{}_patch16_siglip_{}', {'giantopt': _GIANTOPT}, (256, 384)),
    ('naflexvit_{}_patch16_siglip', {
        'base': records.B, 'so400m': records.SO400M}, (384,)))


LINEAGE = records.Lineage(
    arrays=(
        records.Family(
            'siglip', 'Hugging Face SigLIP', _SIGLIP, settings=records.TANH,
            positions='bicubic', preprocess=records.HALF,
            not_classified='pooling/', flat='siglip2'),
        records.Family(
            'siglip2', 'Hugging Face SigLIP 2 (NaFlex)', _SIGLIP2,
            settings=records.TANH, positions='bilinear',
            preprocess=records.HALF, not_classified='pooling/')),
    backbones=tuple(records.Backbones(*row, records.MAP) for row in _BACKBONES),
    words=('siglip',),
    vit=(r'naflexvit_SIZE_patch16_((par|parfac|reg1)_)?siglip',),
    # The first SigLIP uses the exact GELU, later ones the approximation.
    implied=((
        'naflexvit_.*_siglip'
        '|vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip_.*'
        '|vit_large_patch16_siglip_(gap_)?512', {'gelu': 'tanh'}),),
    types={
        'siglip_vision_model': records.ModelType('siglip'),
        'siglip': records.ModelType('siglip', inner=records.VISION),
        'siglip2_vision_model': records.ModelType('siglip2'),
        'siglip2': records.ModelType('siglip2', inner=records.VISION)})
