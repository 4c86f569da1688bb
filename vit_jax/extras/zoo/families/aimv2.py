"""AIMv2: arXiv 2411.14402, table 1."""

from vit_jax.extras.zoo.families import clip
from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.weights.formats import layout

_NAMES = layout.Table('aimv2', names.rows(
    names.QKV + """
    patches                .embeddings.patch_embed                conv
    positions              .embeddings.position_embedding.weight
    patch_norm/scale       .embeddings.rms_norm.weight
    @attention/out         @attention.out_proj                    out
    @attention_norm        @rms_norm1                             norm
    @mlp_norm              @rms_norm2                             norm
    @mlp/hidden            @ffn.up_proj                           denses
    @mlp/gate              @ffn.gate_proj                         denses
    @mlp/out               @ffn.down_proj                         denses
    final_norm/scale       .rms_norm.weight
    """, names.TOWER_LAYER, 'vision_model'),
    renames={r'^(embeddings|encoder|rms_norm|head)\.': r'vision_model.\1.'},
    ignored=clip.NAMES.ignored,
    unsupported={r'(vision_model\.)?head\..*|visual_projection\..*': (
        'attention pooling without a query projection and an MLP, which our '
        'models lack')})

_SETTINGS = {**records.SWIGLU, 'pooling': 'average', 'stem_norm': 'patches',
             'norm': 'rms', 'qkv_bias': False, 'proj_bias': False}
_HEADS = {'large': 8, 'huge': 12, '1b': 16, '3b': 24}


LINEAGE = records.Lineage(
    arrays=(records.Family(
        'aimv2', 'Hugging Face AIMv2', _NAMES,
        settings={'layer_norm_epsilon': 1e-5}, positions='bicubic',
        preprocess=records.CLIP, base='vision_model.'),),
    backbones=(records.Backbones('aimv2_{}_patch14_{}', {
        'large': records.Size(1024, 24, 2816, 8),
        'huge': records.Size(1536, 24, 4096, 12),
        '1b': records.Size(2048, 24, 5632, 16),
        '3b': records.Size(3072, 24, 8192, 24)}, (224, 336, 448), _SETTINGS),),
    vit=(r'aimv2_(large|huge|1b|3b)_patch14_\d+',),
    implied=(
        ('aimv2_.*', {'layer_norm_epsilon': 1e-5}),
        *((f'aimv2_{size}_.*', {'num_heads': heads})
          for size, heads in _HEADS.items())),
    architectures=(records.Architecture(
        'aimv2_large_patch14_224', fixed=('norm', 'stem_norm')),),
    types={'aimv2_vision_model': records.ModelType(
        'aimv2', num_heads=8, inner=records.VISION)},
    read_as={'aimv2': 'aimv2_vision_model'})
