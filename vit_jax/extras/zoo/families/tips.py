"""TIPSv2: arXiv 2604.12012. Its names are those of `dino`."""

from vit_jax.extras.zoo.families import records

_SETTINGS = {'layer_scale': 1.0, 'registers': 1}
LINEAGE = records.Lineage(
    backbones=(
        records.Backbones('vit_{}_patch14_reg1_tipsv2', {
            'base': records.B, 'large': records.L, 'so400m': records.SO400M},
                          (448,), _SETTINGS),
        records.Backbones('vit_{}_patch14_reg1_tipsv2', records.GIANT, (448,),
                          {**_SETTINGS, **records.SWIGLU})),
    words=('tipsv2',),
    implied=((r'vit_giant_patch\d+_.*tipsv2', {'num_heads': 24}),),
    types={'tipsv2_vision_model': records.ModelType(
        'meta', inner=records.VISION, positions='bilinear',
        preprocess={'mean': (0.0,) * 3, 'std': (1.0,) * 3})},
    read_as={'tipsv2': 'tipsv2_vision_model'})  # With a tower of texts.
