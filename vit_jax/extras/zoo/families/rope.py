"""RoPE-ViT (arXiv 2403.13298) and ViT-5."""

import dataclasses

from vit_jax.extras.zoo.families import records
from vit_jax.extras.zoo.families import timm

# ViT-5 stores its rotary frequencies, which its settings give.
_VIT5 = dataclasses.replace(
    timm.TIMM, ignored=(r'blocks\.\d+\.attn\.rope(_reg)?\.freqs',))

LINEAGE = records.Lineage(
    arrays=(records.Family(
        'vit5', 'ViT-5', _VIT5,
        settings={**records.EXACT, 'rotary': {'register_base': 100.0}},
        positions='bicubic', preprocess=records.IMAGENET,
        num_heads={1152: 16}),),
    backbones=tuple(
        records.Backbones(f'vit_{{}}_patch16_{kind}_{{}}', records.SBL, (224,),
                          records.SCALED)
        for kind in ('rope', 'rope_ape', 'rope_mixed', 'rope_mixed_ape')),
    eva=(r'vit_SIZE_patch\d+_rope_(mixed_)?(ape_)?\d+',),
    implied=(
        (r'.*_rope_(mixed_|ape_)*\d+', {
            'rotary': {'base': 100.0, 'x_first': True}, 'pooling': 'cls'}),
        ('.*_rope_mixed_.*', {'rotary': {
            'base': 10.0, 'x_first': True, 'learned': True}}),
        (r'.*_rope_(mixed_)?\d+', {'position': 'none'}),
        ('.*_rope_(mixed_)?ape_.*', {'position_cls': False})),
    architectures=(records.Architecture(
        'vit_small_patch16_rope_224', 'eva', fixed=('layer_scale',)),))
