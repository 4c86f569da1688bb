"""C-RADIO: arXiv 2412.07679 (C-RADIOv3), 2601.17237 (C-RADIOv4)."""

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.extras.zoo.families import timm
from vit_jax.weights.formats import layout

# NVIDIA and Transformers: several class tokens, of which all but the first
# become registers (`joint`), and no bias of the patches.
_NAMES = layout.Table('radio', rows=(
    layout.Row('patches/kernel', 'patch_generator.embedder.weight',
        'o (channels side w) -> side w channels o'),
    *names.rows("""
    cls               patch_generator.cls_token.token
    positions         patch_generator.pos_embed  tokens
    @attention_scale  @layer_scale1.lambda1
    @mlp_scale        @layer_scale2.lambda1
    """, layer=timm.BLOCK),
    *(row for row in timm.TIMM.rows if row.theirs.startswith(timm.BLOCK))),
    ignored=(r'patch_generator\.video_embedder\..*',))

_SCALED = {**records.SCALED, 'registers': 7}


LINEAGE = records.Lineage(
    arrays=(records.Family(
        'radio', 'C-RADIO', _NAMES, prefix='radio_model.model.',
        settings={**records.EXACT, 'final_norm': False, 'position_cls': False},
        positions='bilinear_sharp_square', preprocess=records.CLIP,
        num_heads={1152: 16, 1536: 24}, normalizes=True),),
    backbones=tuple(
        records.Backbones(
            f'{kind}_{{}}_patch16_radio_v{version}', sizes, (512,), settings)
        for kind in ('vit', 'naflexvit') for version, sizes, settings in (
            (3, {'base': records.B, 'large': records.L}, _SCALED),
            (3, {'huge': records.H,
                 'giant': records.Size(1536, 40, 6144, 24)}, {'registers': 7}),
            (4, {'so400m': records.SO400M, 'huge': records.H},
             {'registers': 9}))),
    words=(r'radio_v\d',),
    vit=(r'naflexvit_SIZE_patch16_((par|parfac|reg1)_)?radio_v\d',),
    implied=(
        (r'(naflex)?vit_giant_patch\d+_.*radio_v\d', {'num_heads': 24}),
        ('vit_.*_radio_.*', {'position_cls': False}),
        ('(naflex)?vit_.*_radio_.*', {'final_norm': False})),
    # 'linear' has aligned corners.
    positions={r'vit_(base|huge)_patch16_radio_v3': 'linear',
               'vit_.*_radio_.*': 'bilinear_sharp'},
    types={'radio': records.ModelType('radio', num_heads=16)})
