"""EVA; EVA-02: arXiv 2303.11331, table 3; EVA-CLIP: arXiv 2303.15389."""

from vit_jax.extras.zoo.families import records

_SETTINGS = {**records.SWIGLU, 'key_bias': False}
_POOL = {**_SETTINGS, **records.POOL_NORM, 'cls': True}
_INNER = {**_POOL, 'inner_norm': 'mlp'}
_CLIP = {**_SETTINGS, 'inner_norm': 'both'}
_B = records.Size(768, 12, 2048, 12)
_L = records.Size(1024, 24, 2730, 16)

LINEAGE = records.Lineage(
    backbones=(
        records.Backbones('eva02_{}_patch14_{}', {
            'tiny': records.Size(192, 12, 512, 3),
            'small': records.Size(384, 12, 1024, 6)}, (224, 336), _POOL),
        records.Backbones('eva02_{}_patch14_{}', {'base': _B, 'large': _L},
                          (224, 448), _INNER),
        records.Backbones('eva02_{}_patch16_clip_{}', {'base': _B}, (224,),
                          _CLIP),
        records.Backbones('eva02_{}_patch14_clip_{}', {
            'enormous': records.Size(1792, 64, 15360, 16)}, (224,),
                          {'key_bias': False}),
        records.Backbones('eva02_{}_patch14_clip_{}', {'large': _L}, (224, 336),
                          _CLIP)),
    eva=(r'eva02_SIZE_patch\d+_(clip_)?\d+',
         r'eva_(giant|large)_patch14_(clip_)?\d+'),
    implied=(
        ('eva.*_clip_.*', {'pooling': 'cls'}),
        ('eva02_.*', {'rotary': {'reference': 16}}),
        ('eva02_enormous_.*', {'post_norm': True, 'rotary': None})),
    architectures=(records.Architecture(
        'eva02_base_patch14_224', 'eva', fixed=('layer_scale',)),))
