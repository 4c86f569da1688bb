"""CLIP: arXiv 2103.00020, table 20; OpenCLIP: 2212.07143; MetaCLIP 2."""

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records

NAMES = names.tower('clip', """
    cls                .embeddings.class_embedding  vector
    stem_norm          .pre_layrnorm                norm
    head/dense/kernel  visual_projection.weight     matrix
    """)

_TOKENS = {'stem_norm': 'tokens'}

LINEAGE = records.Lineage(
    arrays=(records.Family(
        'clip', 'Hugging Face CLIP', NAMES,
        settings={'layer_norm_epsilon': 1e-5}, positions='bicubic',
        preprocess={**records.CLIP, 'activation': 'none'},
        not_classified='final_norm/', ambiguous=True),),
    backbones=tuple(
        records.Backbones(
            f'vit_{{}}_patch{patch}_{kind}_{{}}', sizes, resolutions, _TOKENS)
        for kind in ('clip', 'clip_quickgelu')
        for patch, sizes, resolutions in (
            (32, {'base': records.B}, (224,)),
            (16, {'base': records.B}, (224,)),
            (14, {'large': records.L}, (224, 336)),
            (14, {'huge': records.H}, (224,)))),
    words=('clip', 'quickgelu'),
    implied=(
        ('vit_.*_quickgelu_.*', {'gelu': 'quick'}),
        ('vit_.*_clip_.*', {'layer_norm_epsilon': 1e-5})),
    architectures=(records.Architecture(
        'vit_base_patch16_clip_224', fixed=('norm',)),),
    types={
        'clip': records.ModelType(
            'clip', {**_TOKENS, 'pooling': 'average', 'final_norm': False,
                     'cls': True},
            gelu='quick', inner=records.VISION),
        'clip_vision_model': records.ModelType('clip', gelu='quick')},
    read_as={'metaclip_2': 'clip',
             'metaclip_2_vision_model': 'clip_vision_model'})
