"""Perception Encoders: arXiv 2504.13181, table 1."""

from vit_jax.extras.zoo.families import records

_SETTINGS = {'stem_norm': 'tokens', 'cls': True, 'pool_prefix': True}

LINEAGE = records.Lineage(
    backbones=(
        records.Backbones('vit_pe_core_{}_patch16_{}', {
            'tiny': records.TI, 'small': records.S}, (384,), _SETTINGS),
        records.Backbones('vit_pe_core_{}_patch16_{}', {'base': records.B},
                          (224,), _SETTINGS),
        records.Backbones('vit_pe_core_{}_patch14_{}', {'large': records.L},
                          (336,), _SETTINGS),
        records.Backbones('vit_pe_core_{}_patch14_{}', {
            'gigantic': records.Size(1536, 50, 8960, 16)}, (448,),
                          {**_SETTINGS, 'cls': False, 'pool_mlp_dim': 6144})),
    eva=(r'vit_pe_(core|lang|spatial)_SIZE_patch\d+_\d+',),
    implied=(
        *((f'vit_pe_{pattern}_.*', {
            'rotary': {'reference': side, 'offset': 1.0, 'x_first': True},
            'layer_norm_epsilon': 1e-5}) for pattern, side in (
                ('.*', 32),
                # The grid of the pre-training.
                ('core_base', 14), ('core_(large|small|tiny)', 24))),
        ('vit_pe_.*_gigantic_.*', {
            'rotary': {'reference': 32, 'x_first': True}}),
        ('vit_pe_core_.*', {'pooling': 'attention', 'pool_heads': 8}),
        ('vit_pe_lang_large_.*', {'depth': 23}),
        ('vit_pe_(lang|spatial)_.*', {'final_norm': False})),
    architectures=(records.Architecture(
        'vit_pe_core_base_patch16_224', 'eva', fixed=('layer_scale',)),))
