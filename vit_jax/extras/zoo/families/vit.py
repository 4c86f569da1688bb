"""Plain ViTs: AugReg, DeiT, MAE, FlexiViT, I-JEPA, MSN and Pixio.

The files of the paper, AugReg and big_vision are those of the trunk; here are
timm's and Transformers'.
"""

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.weights.formats import layout

_NAMES = layout.Table('huggingface', names.rows(
    names.STEM + names.QKV + names.LAYER + """
    representation/dense  .pooler.dense                   dense
    distill               .embeddings.distillation_token  tokens
    head/distill          distillation_classifier         dense
    """, 'vit.layers.{layer}.', 'vit'),
    renames={
        '^cls_classifier': 'classifier',
        # A model without a head, DeiT, I-JEPA and Pixio.
        (r'^((deit|ijepa|pixio)\.)?'
         r'(embeddings|encoder|layers|layernorm|pooler)\.'): r'vit.\3.',
        **names.BEFORE_5,
        r'(\d)\.norm1\.': r'\1.layernorm_before.',
        r'(\d)\.norm2\.': r'\1.layernorm_after.'},
    unsupported={r'.*mask_token': 'a mask token, which our models lack'})

_TSB = {'tiny': records.TI, 'small': records.S, 'base': records.B}
_PATCH16 = {'tiny': records.TI, **records.SBL}

LINEAGE = records.Lineage(
    arrays=(records.Family(
        'huggingface', 'Hugging Face ViT', _NAMES,
        settings={'gelu': 'exact', 'layer_norm_epsilon': 1e-12},
        # The classifier reads the class token, not the tanh layer.
        positions='bicubic', not_classified='representation/', base='vit.',
        embeds_registers=True, several_cls='cls_registers'),),  # Pixio.
    backbones=(
        # arXiv 2012.12877 (DeiT); 2106.10270 (AugReg); 2111.06377 (MAE).
        records.Backbones('deit_{}_patch16_{}', _TSB, (224,)),
        records.Backbones('deit_{}_distilled_patch16_{}', _TSB, (224,),
                          {'distill_token': True}),
        records.Backbones('vit_{}_patch16_{}', _PATCH16, (224, 384)),
        records.Backbones('vit_{}_patch32_{}', records.SBL, (224, 384)),
        records.Backbones('vit_{}_patch14_{}', {'huge': records.H}, (224,)),
        # arXiv 2203.09795.
        records.Backbones('vit_{}_patch16_18x2_{}', {
            'small': records.Size(384, 18, 1536, 6),
            'base': records.Size(768, 18, 3072, 12)}, (224,), records.SCALED),
        # arXiv 2204.07118 (DeiT III).
        records.Backbones('deit3_{}_patch16_{}', records.SBL, (224, 384),
                          records.SCALED),
        records.Backbones('deit3_{}_patch16_{}', {'medium': records.MEDIUM},
                          (224,), records.SCALED),
        records.Backbones('deit3_{}_patch14_{}', {'huge': records.H}, (224,),
                          records.SCALED),
        # arXiv 2212.08013 (FlexiViT).
        records.Backbones('flexivit_{}', records.SBL, (240,))),
    vit=(r'deit3?_SIZE(_distilled)?_patch\d+WORDS', 'flexivit_SIZE'),
    implied=(('(deit3|flexivit)_.*', {'position_cls': False}),),
    positions={'flexivit_.*': 'bilinear_sharp'},
    architectures=(records.Architecture(
        'deit_base_distilled_patch16_224', fixed=(
            'registers', 'position', 'position_cls')),),
    types={
        'deit': records.ModelType('huggingface', num_heads=0),
        'pixio': records.ModelType('huggingface', epsilon=1e-6, num_heads=16),
        'ijepa': records.ModelType('huggingface'),
        'vit': records.ModelType('huggingface', num_heads=0),
        'vit_msn': records.ModelType('huggingface', epsilon=1e-6)})
