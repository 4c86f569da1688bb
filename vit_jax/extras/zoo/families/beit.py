"""BEiT and data2vec: arXiv 2106.08254 (BEiT), 2208.06366 (BEiT v2)."""

from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.weights.formats import layout

_NAMES = layout.Table('beit', names.rows(
    names.STEM + names.QV + names.LAYER + """
    @attention_scale  @lambda_1
    @mlp_scale        @lambda_2
    @attention/relative/offsets @relative_position_bias.{table}
    relative/offsets  .shared_position_bias.{table}
    pool_norm         .pooler.layernorm  norm
    """.replace('{table}', 'relative_position_bias_table'),
    'beit.layers.{layer}.', 'beit'),
    renames={
        # A model without a head, and data2vec.
        r'^(data2vec_vision\.)?(embeddings|encoder|layer(s|norm)|pooler)\.': (
            r'beit.\2.'),
        **names.BEFORE_5,
        r'\.attention\.attention\.relative_': '.relative_',
        r'\.encoder\.relative_position': '.shared_position'},
    # Masked patches are only for pre-training.
    ignored=(r'.*\.mask_token', r'lm_head\..*', r'.*\.relative_position_index'),
)

_SIZES = {'base': records.B, 'large': records.L}
_SETTINGS = {**records.SCALED, **records.POOL_NORM, 'position': 'relative_2d',
             'cls': True, 'key_bias': False}


LINEAGE = records.Lineage(
    arrays=(records.Family(
        'beit', 'Hugging Face BEiT', _NAMES,
        settings={'gelu': 'exact', 'layer_norm_epsilon': 1e-12},
        positions='bicubic', base='beit.'),),
    backbones=(
        records.Backbones('beit_{}_patch16_{}', _SIZES, (224, 384), _SETTINGS),
        records.Backbones('beit_{}_patch16_{}', {'large': records.L}, (512,),
                          _SETTINGS),
        records.Backbones('beitv2_{}_patch16_{}', _SIZES, (224,), _SETTINGS)),
    vit=(r'beit(v2)?_SIZE_patch\d+_\d+', r'beit3_SIZE_patch\d+WORDS'),
    implied=(
        ('beit(v2)?_.*', {'pooling': 'average'}),
        ('beit3_.*', {'layer_norm_epsilon': 1e-5})),
    architectures=(records.Architecture('beit_base_patch16_224', 'beit'),),
    types={'beit': records.ModelType('beit')},
    read_as={'data2vec-vision': 'beit'})  # It computes the same.
